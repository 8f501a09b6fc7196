"""Corrections of a float model before it is quantized without training: each takes a model and returns a new one.

The last three change a model in place. `weights_alone` is no correction: it returns a specification that quantizes
weights only.

fold_batch_norm      fold batch normalizations into the layers before them (in `conversion`)
equalize_scales      scale the channels of one layer against those of the next
shift_negative       shift activations with a short negative side to start at 0
smooth_scales        move scales from activations into the weights that read them, as in Transformers
clip_weights         clip outlying weights to minimize the quantization error
codebook_weights     replace weights by a few levels found by clustering
correct_biases       correct biases for the mean shift that quantizing the weights causes
gptq_weights         round the matrices of a quantized model by GPTQ, from data without labels and without training
learn_rounding       learn to round every weight of a quantized model up or down, from data without labels
estimate_statistics  recompute mean and variance of batch normalizations after training
"""

from __future__ import annotations

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
    "gptq_weights",
    "learn_rounding",
    "shift_negative",
    "smooth_scales",
    "weights_alone",
]
