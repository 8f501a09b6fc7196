"""Float models written another way, with the same outputs, so that more of them can run on integers.

split_activations               a layer's activation function becomes a node of its own
split_attention                 attention becomes projections, products and a softmax
split_separable_convolutions    a separable convolution becomes two convolutions
merge_lora                      low-rank updates become a part of their kernels
fold_batch_norm                 batch normalizations become a part of the layers before them
"""

from __future__ import annotations

from qdq_workbench.conversion.transforms.fold_batch_norm import fold_batch_norm
from qdq_workbench.conversion.transforms.merge_lora import merge_lora
from qdq_workbench.conversion.transforms.split_activations import split_activations
from qdq_workbench.conversion.transforms.split_attention import split_attention
from qdq_workbench.conversion.transforms.split_separable import split_separable_convolutions

__all__ = ["fold_batch_norm", "merge_lora", "split_activations", "split_attention", "split_separable_convolutions"]
