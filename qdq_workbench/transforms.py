"""Transformations of float models with the same outputs, so that more of the model can run on integers.

split_activations               split the activation functions of layers into separate layers
split_attention                 split attention into projections, products and a softmax
split_separable_convolutions    split separable convolutions into two convolutions
merge_lora                      merge low-rank updates into their kernels
fold_batch_norm                 fold batch normalizations into the layers before them
"""

from __future__ import annotations

from qdq_workbench.conversion.transforms.fold_batch_norm import fold_batch_norm
from qdq_workbench.conversion.transforms.merge_lora import merge_lora
from qdq_workbench.conversion.transforms.split_activations import split_activations
from qdq_workbench.conversion.transforms.split_attention import split_attention
from qdq_workbench.conversion.transforms.split_separable import split_separable_convolutions

__all__ = ["fold_batch_norm", "merge_lora", "split_activations", "split_attention", "split_separable_convolutions"]
