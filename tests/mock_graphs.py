"""Hand-built graphs for planner tests: no Keras, milliseconds."""

from qdq_workbench.graph.model_graph import ModelGraph, Node, Tensor, Weight

KERNEL = (Weight("kernel", (3, 3, 4, 4)), Weight("bias", (4,)))
IMAGE = (None, 8, 8, 4)


class GraphMaker:
    """Builds a graph node by node: `maker.add("Conv2D", "conv", "image")`."""

    def __init__(self, *inputs, shape=IMAGE, dtype="float32"):
        self.nodes = []
        self.tensors = {}
        self.inputs = inputs or ("image",)
        for name in self.inputs:
            self._append(Node(name, name, "InputLayer", outputs=(name,)), shape, dtype)

    def add(self, class_name, name, *inputs, layer=None, shape=IMAGE, dtype="float32", **fields):
        weighted = class_name.startswith(("Conv", "Dense", "Depthwise"))
        fields.setdefault("weights", KERNEL if weighted and not fields.get("is_operation") else ())
        node = Node(name, layer or name, class_name, inputs=inputs, outputs=(name,), **fields)
        self._append(node, shape, dtype)
        return name

    def graph(self, *outputs):
        return ModelGraph("net", tuple(self.nodes), self.tensors, tuple(self.inputs), outputs)

    def _append(self, node, shape, dtype):
        self.nodes.append(node)
        self.tensors[node.name] = Tensor(node.name, shape, dtype, node.name)


def chain(*layers):
    """Return a graph of layers in a row, each given as (class, name) or (class, name, settings)."""
    maker = GraphMaker()
    last = "image"
    for class_name, name, *settings in layers:
        last = maker.add(class_name, name, last, settings=settings[0] if settings else {})
    return maker.graph(last)


def residual(*branch, skip=()):
    """Return a graph that adds a branch to a skip connection: `add` has inputs (branch, skip)."""
    maker = GraphMaker()
    stem = maker.add("ReLU", "stem", "image")
    ends = []
    for prefix, layers in (("", branch), ("skip_", skip)):
        last = stem
        for class_name in layers:
            last = maker.add(class_name, f"{prefix}{class_name.lower()}", last, settings=_settings(class_name))
        ends.append(last)
    maker.add("Add", "add", *ends)
    return maker.graph("add")


def _settings(class_name):
    return {"activation": "relu"} if class_name == "Activation" else {}
