"""Corrections of a float model before it is quantized without training: each takes a model and returns a new one.

The last three change a quantized model in place. `weights_alone` is no correction: it says what is quantized.

fold_batch_norm      batch normalizations into the layers before them (in `conversion`)
equalize_scales      channels of one layer against those of the next
shift_negative       activations with few negative values moved to start at 0
smooth_scales        scales moved from activations into the weights that read them, as in Transformers
clip_weights         outlying weights cut where the rounding error falls
codebook_weights     weights of a few levels that clusters of them choose
correct_biases       the mean shift that quantizing the weights causes
gptq_weights         the integers of matrices by GPTQ, from data without labels and without training
learn_rounding       up or down for every weight of a quantized model, learned from data without labels
estimate_statistics  mean and variance of batch normalizations, taken anew behind a training
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
