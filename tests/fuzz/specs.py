"""A hypothesis strategy for specifications of a given model, each entry about something that the model has."""

from hypothesis import strategies as st

import qdq_workbench as qdq


@st.composite
def specs(draw, graph):
    """Draw up to four entries: by name, by class or by pattern, with flags and inputs."""
    spec = qdq.QuantizationSpec()
    nodes = [node for node in graph.nodes if node.class_name != "InputLayer"]
    for _ in range(draw(st.integers(0, 4)) if nodes else 0):
        node = draw(st.sampled_from(nodes))
        kind = draw(st.sampled_from(["exact", "class", "glob"]))
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
        spec.add(node.layer, **flags)
    return spec
