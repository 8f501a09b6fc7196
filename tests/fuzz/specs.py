"""A hypothesis strategy for specifications of a given model, each entry about something that the model has."""

import keras
from fuzz.own import OwnRange
from hypothesis import strategies as st

import qdq_workbench as qdq

_WEIGHTS = (
    {"num_bits": 4},
    {"num_bits": 4, "symmetric": False, "narrow_range": False},
    {"num_bits": 2},
    {"per_axis": False},
    {"narrow_range": False},
    {"quantizer": "lsq"},
    {"quantizer": "moving_average", "num_bits": 5},
    {"quantizer": keras.saving.serialize_keras_object(OwnRange())},
)
_ACTIVATIONS = (
    {"num_bits": 4},
    {"num_bits": 4, "symmetric": False, "signed": False},
    {"num_bits": 16},
    {"narrow_range": True},
    {"quantizer": "lsq"},
    {"quantizer": "fixed", "init_min": -1.0, "init_max": 2.0},
    {"quantizer": "fixed", "init_min": 0.0, "init_max": 9.0},
    {"signed": True},
    {"signed": True, "symmetric": True},
    {"quantizer": keras.saving.serialize_keras_object(OwnRange())},
)


@st.composite
def specs(draw, graph, *, hard=False):
    """Draw up to four entries: by name, by class or by pattern, with flags and inputs.

    Hard ones have quantizers of a layer's own, and leave convolutions behind inserted axes in float now and then.
    """
    spec = qdq.QuantizationSpec()
    nodes = [node for node in graph.nodes if node.class_name != "InputLayer"]
    for _ in range(draw(st.integers(0, 4)) if nodes else 0):
        node = draw(st.sampled_from(nodes))
        kind = draw(st.sampled_from(["exact", "class", "glob", *["config"] * 2 * hard]))
        flags = {"quantize_input": draw(st.booleans()), "quantize_weight": draw(st.booleans())}
        real = any("float" in graph.tensors[tensor].dtype for tensor in node.outputs)
        flags["quantize_output"] = real and draw(st.booleans())
        if kind == "class":
            spec.add(node.class_name, is_keras_class=True, **flags)
            continue
        if kind == "glob":
            spec.add(node.layer[: draw(st.integers(1, 3))] + "*", match="glob", **flags)
            continue
        calls = min(len(call.inputs) for call in graph.calls(node.layer))
        if calls and flags["quantize_input"] and draw(st.booleans()):
            flags["quantization_index"] = draw(st.lists(st.integers(0, calls - 1), min_size=1, max_size=2))
        if kind == "config" and not node.is_operation:
            with_output = real and draw(st.booleans())
            flags |= {"quantize_input": True, "quantize_weight": True, "quantize_output": with_output}
            flags["quantize_config"] = draw(configs(with_output))
            flags.pop("quantization_index", None)
        spec.add(node.layer, **flags)
    for node in nodes if hard else ():
        if (
            "Conv" in node.class_name
            and graph.producer(node.inputs[0]).class_name == "ExpandDims"
            and draw(st.booleans())
        ):
            spec.add(node.layer, quantize_input=False, quantize_weight=False)
    return spec


@st.composite
def configs(draw, with_output):
    """Draw quantizers of one layer: few bits, other grids, learned steps, fixed ranges, a class of the user's own."""
    weight, activation = draw(st.sampled_from(_WEIGHTS)), draw(st.sampled_from([None, *_ACTIVATIONS]))
    output = draw(st.sampled_from([None, *_ACTIVATIONS])) if with_output else None
    return qdq.LayerQuantizeConfig(weight=weight, activation=activation, output=output)
