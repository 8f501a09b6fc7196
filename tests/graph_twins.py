"""What Python and the page compute twice, from the same plan: the matches of a search, and where outputs are quantized.

`graph_twins.json` has the plans of `CASES` as the page gets them, and the answers; `test_graph_twins.py` and
`widgets/src/graph_twins.test.ts` read it. After a change here, or of what the page gets,
`PYTHONPATH=widgets python tests/graph_twins.py` writes it anew.
"""

import json
import pathlib

from mock_graphs import KERNEL, GraphMaker

import qdq_workbench as qdq
from qdq_widgets.graph_payload import disabled_reasons, graph_payload, plan_state
from qdq_workbench.graph.model_graph import Node, Tensor, Weight

FILE = pathlib.Path(__file__).with_suffix(".json")
CELL = tuple(Weight(f"cell/{name}", (4, 4)) for name in ("kernel", "recurrent_kernel"))
ATTENTION = tuple(Weight(f"{name}/kernel", (4, 4)) for name in ("query", "key", "value", "attention_output"))


def norm_weights(*names):
    """Return weights with one value per channel."""
    return tuple(Weight(name, (4,)) for name in names)


STATISTICS = norm_weights("gamma", "beta", "moving_mean", "moving_variance")


def masked_layers():
    """Return a plan of layers that read a mask, quantized as a whole, in part and not at all."""
    maker = GraphMaker("image", "mask")
    maker.tensors["mask"] = Tensor("mask", (None, 8, 8), "bool", "mask")
    last = "image"
    for name in ("whole", "first", "weights", "none"):
        last = maker.add("MultiHeadAttention", name, "image", last, "mask", weights=ATTENTION)
    maker.add("Add", "sum", last, "image")
    maker.add("Where", "where", "mask", "sum", "image", is_operation=True)
    spec = qdq.QuantizationSpec()
    spec.add("whole")
    spec.add("first", quantization_index=[0])
    spec.add("weights", quantize_input=False, quantize_weight=True)
    spec.add("where", quantize_weight=False)
    return qdq.plan_placement(maker.graph("where"), "partial", spec)


def ways_to_a_pair():
    """Return a plan of convolutions whose output gets a pair behind another layer, with something else on each way."""
    maker = GraphMaker()
    ends = []

    def way(name, class_name, **fields):
        maker.add("Conv2D", f"conv_{name}", "image")
        maker.add(class_name, name, f"conv_{name}", **fields)
        ends.append(maker.add("ReLU", f"relu_{name}", name))

    way("norm", "BatchNormalization", weights=STATISTICS)
    way("pool", "MaxPooling2D")
    way("layer_norm", "LayerNormalization", weights=STATISTICS[:2])
    way("prelu", "PReLU", weights=norm_weights("alpha"))
    way("conv", "Conv2D")
    way("lstm", "LSTM", weights=CELL)
    way("own", "Own", weights=KERNEL)
    way("hidden", "Hidden", weights=norm_weights("table"), opaque="its call is not visible")
    maker.add("Conv2D", "conv_output", "image")  # an output of the model, too
    ends += ["conv_output", maker.add("ReLU", "relu_output", "conv_output")]
    maker.add("Conv2D", "conv_fork", "image")
    ends += [maker.add("ReLU", name, "conv_fork") for name in ("relu_fork", "other_fork")]
    for split, parts in (("split", ("split", "split:1")), ("halves", ("halves", "halves:1"))):
        maker.add("Conv2D", f"conv_{split}", "image")
        maker.nodes.append(Node(split, split, "Split", inputs=(f"conv_{split}",), outputs=parts, is_operation=True))
        maker.tensors.update((part, Tensor(part, (None, 8, 8, 2), "float32", split)) for part in parts)
        ends += [maker.add("ReLU", f"relu_{part}", part) for part in parts]
    spec = qdq.QuantizationSpec()
    spec.add("relu_*", match="glob", quantize_input=False, quantize_output=True)
    spec.add("split", quantize_input=False, quantize_output=True)
    for name in ("prelu", "conv", "lstm", "own", "hidden"):
        spec.add(name, quantize_input=False, quantize_weight=False)
    return qdq.plan_placement(maker.graph(*ends), "full", spec)


# By name: the plan, the queries with their matches, and for outputs without a pair the layer behind which they get it.
CASES = {
    "masked layers": (
        masked_layers,
        [
            ("int8", ["whole", "where"]),
            ("mixed", ["first", "weights"]),
            ("float", ["none"]),
            ("i=8", ["whole", "first", "where"]),
            ("i=float", ["first", "weights", "none", "sum"]),
            ("w=8", ["whole", "first", "weights"]),
            ("not int8", ["first", "weights", "none"]),
        ],
        {},
    ),
    "ways to a pair": (
        ways_to_a_pair,
        [],
        {"conv_norm": "relu_norm", "norm": "relu_norm", "conv_pool": "relu_pool", "pool": "relu_pool"}
        | {name: f"relu_{name}" for name in ("layer_norm", "prelu", "conv", "lstm", "own", "hidden")},
    ),
}


def recorded(name):
    """Return a case as the JSON file has it."""
    make, queries, after = CASES[name]
    plan = make()
    return {
        "name": name,
        "graph": graph_payload(plan.graph, disabled_reasons(plan)),
        "plan_state": plan_state(plan),
        "queries": queries,
        "after": after,
    }


def text():
    """Return the text of the JSON file, with one line per field."""
    return f"[{', '.join(_lines(recorded(name), 2) for name in CASES)}]\n"


def _lines(value, depth):
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    fields = (f"{json.dumps(key)}: {_lines(each, depth - 1)}" for key, each in value.items())
    return "{\n" + ",\n".join(fields) + "\n}"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
