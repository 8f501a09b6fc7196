"""`weights_alone`: a specification that quantizes weights only, to save the memory of large matrices."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from qdq_workbench.errors import SpecError
from qdq_workbench.graph.block_axes import block_axes
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph_builder import build_graph
from qdq_workbench.placement.defaults import find_named_default
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig

_MOST_BITS = 8


def weights_alone(
    model: keras.Model | ModelGraph,
    num_bits: int = 4,
    block_size: int | None = 32,
    *,
    symmetric: bool = True,
    narrow_range: bool | None = None,
) -> QuantizationSpec:
    """Return a specification that quantizes the weights of matrix products and tables and leaves activations in float.

    It has an entry for every `Dense`, `EinsumDense`, `Embedding` and attention layer of a model (also inside of
    `TimeDistributed`). Quantize with it in "partial" mode, so that nothing else is quantized; no data are needed.
    Entries added later take precedence: `spec.add("head", quantize_input=False, quantize_weight=False)` leaves one
    layer in float.

    Args:
        model: A built Keras model, or its graph; it is only read.
        num_bits: Number of bits of the integers, 2 to 8; up to 4 bits a file stores two integers per byte.
        block_size: How many values share a scale, along the axis that products are summed up over; None for one scale
            per output channel. ONNX Runtime takes 16, 32, 64, 128 and 256, TensorRT 64 and 128 at 4 bits. If the
            length of the axis is not a multiple of it, the last block is shorter (TensorRT and OpenVINO take no such
            weights).
        symmetric: Whether zero points are 0. False gives every block a zero point, and a smaller scale if its values
            have mostly one sign.
        narrow_range: Whether to leave out the lowest integer; None for True on symmetric grids, else False.

    Returns:
        The specification.

    Raises:
        SpecError: If the model has no such layers, or a setting is out of range.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Source:
        ONNX DequantizeLinear, version 21 (`block_size`); Dettmers and Zettlemoyer 2023, arXiv:2212.09720, on 4 bits in
        small blocks.

    Example:
        >>> import qdq_workbench as qdq
        >>> image = keras.Input((64,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(8, name="head")(image))
        >>> q_model = qdq.quantize_model(model, "partial", weights_alone(model), target="onnxruntime")
        >>> [tensor.quantizer.label for tensor in q_model.plan.tensors]
        ['int4/blocks of 32 on axis 0']
    """
    if isinstance(num_bits, bool) or not isinstance(num_bits, (int, np.integer)) or not 2 <= num_bits <= _MOST_BITS:
        raise SpecError(
            f"Weights that are quantized alone have 2 to {_MOST_BITS} bits; kernels read no others. "
            f"Received: num_bits={num_bits!r}"
        )
    graph = model if isinstance(model, ModelGraph) else build_graph(model)
    settings: dict[str, Any] = {"num_bits": int(num_bits), "symmetric": symmetric}
    if block_size is not None:
        settings["block_size"] = block_size
    narrow = symmetric if narrow_range is None else narrow_range
    config = LayerQuantizeConfig(weight={**settings, "narrow_range": narrow})
    names = list(dict.fromkeys(node.layer for node in graph.nodes if _is_table_or_product(node)))
    if not names:
        raise SpecError(
            "The model has no layer whose weights are quantized alone: Dense, EinsumDense, Embedding or attention. "
            f"Convolutions run on integers with quantized inputs: quantize_model(model). Received: model {graph.name!r}"
        )
    spec = QuantizationSpec()
    spec.add(names, quantize_input=False, quantize_config=config)
    return spec


def _is_table_or_product(node: Node) -> bool:
    """Return whether all weights that a layer's class quantizes are kernels of matrix products or tables."""
    default = None if node.is_operation else find_named_default(node)
    names = {weight.name for weight in node.weights}
    wanted = [name for name in (default.weights if default is not None else ()) if name in names]
    return bool(wanted) and all(block_axes(node, name) for name in wanted)
