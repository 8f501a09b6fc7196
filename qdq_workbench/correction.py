"""Corrections of a float model before it is quantized, and of a quantized model afterwards, without labels.

    from qdq_workbench import correction

    model = correction.equalize_scales(correction.fold_batch_norm(model))

fold_batch_norm      fold batch normalizations into the layers before them
equalize_scales      equalize the channel ranges of consecutive layers
shift_negative       shift activations with a small negative range so that they start at 0
smooth_scales        move scales from activations into the weights that read them, for Transformers
clip_weights         clip outlying weights where that reduces the quantization error
codebook_weights     replace weights by a few levels from clustering
correct_biases       correct the mean shift caused by quantizing the weights
gptq_weights         round the weight matrices by GPTQ, without labels and without training
learn_rounding       learn to round each weight of a quantized model up or down, without labels
weights_alone        return a specification that quantizes only weights, by default to 4 bits in blocks
estimate_statistics  estimate the moving statistics of batch normalizations again after a training
"""

from __future__ import annotations

from qdq_workbench.conversion.transforms.fold_batch_norm import fold_batch_norm
from qdq_workbench.post_training.bias_correction import correct_biases
from qdq_workbench.post_training.clip_weights import clip_weights
from qdq_workbench.post_training.codebook import codebook_weights
from qdq_workbench.post_training.gptq_weights import gptq_weights
from qdq_workbench.post_training.learn_rounding import learn_rounding
from qdq_workbench.post_training.norm_statistics import estimate_statistics
from qdq_workbench.post_training.scale_equalization import equalize_scales
from qdq_workbench.post_training.shift_negative import shift_negative
from qdq_workbench.post_training.smooth_scales import smooth_scales
from qdq_workbench.post_training.weights_alone import weights_alone

__all__ = [
    "clip_weights",
    "codebook_weights",
    "correct_biases",
    "equalize_scales",
    "estimate_statistics",
    "fold_batch_norm",
    "gptq_weights",
    "learn_rounding",
    "shift_negative",
    "smooth_scales",
    "weights_alone",
]
