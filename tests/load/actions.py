"""What a user does in a bench, drawn by seed: clicks in the graph, calls of Python, tabs, queries."""

import random

import qdq_workbench as qdq

CASES = (qdq.AutoQDQCase, qdq.BNQDQCase, qdq.MaxPoolQDQCase, qdq.ResidualConnectionQDQCase, qdq.ResNetV1QDQCase)
SITES = ("input", "weight", "output")
SETTINGS = ({"num_bits": 4}, {"num_bits": None}, {"symmetric": False}, {"quantizer": "lsq"}, {"quantizer": None})
COLORS = ("plan", "precision", "parameters", "weight bytes")
QUERIES = ("class:conv2d not int8", "b1*_conv?", "w=4", "relu -out", "o=float b2", "float class:add")
VARIANTS = ("all int8", "mixed", "head in float")
NAMES = 40


class OwnCase(qdq.CustomQDQInsertionCase):
    """A case of the user's own, which looks at the Keras model."""

    def case(self, keras_model, qspec):
        spec = qdq.QuantizationSpec()
        spec.add([layer.name for layer in keras_model.layers if layer.name.endswith("0_add")], quantize_output=True)
        return spec

    def info(self):
        return "the sums of every tenth block"


class User:
    """Draws actions and takes them.

    Args:
        bench: The `Workbench`, on the page.
        page: The `Page` that it is on; None where a browser shows it.
        seed: Another one gives other actions.
        own_cases: Whether the user has a case of their own.
    """

    def __init__(self, bench, page, seed, *, own_cases=True):
        self.bench, self.page = bench, page
        self._random = random.Random(seed)  # noqa: S311 - which action comes next
        self._cases = [*CASES, OwnCase] if own_cases else list(CASES)
        self._targets = [name for name in qdq.target_names() if name in ("tensorrt", "onnxruntime", "openvino")]
        self._weights = {
            self.click: 8, self.toggle: 7, self.configure: 4, self.undo: 3, self.redo: 3, self.go_to: 1,
            self.case: 2, self.target: 2, self.mode: 1, self.like: 1, self.entry: 2, self.fix: 1, self.keep: 1,
            self.show: 1, self.compare: 1, self.select: 4, self.query: 2, self.color: 2, self.journal: 1, self.tab: 2,
        }  # fmt: skip
        if page is None:  # a browser is the page: it clicks itself
            self._weights = {k: v for k, v in self._weights.items() if k.__name__ not in ("click", "undo", "redo")}
        self._new = self._random.sample(list(self._weights), len(self._weights))

    def act(self):
        """Take one action, each kind once before they are repeated; return name and refusal."""
        chosen = self._random.choices(list(self._weights), self._weights.values())
        action = self._new.pop() if self._new else chosen[0]
        try:
            refusal = action()
        except qdq.QDQError as error:
            refusal = str(error)
        return action.__name__, refusal

    def _layers(self, most=4):
        nodes = [node.name for node in self.bench.graph.nodes]
        start = self._random.randrange(len(nodes))
        return nodes[start : start + self._random.randint(1, most)]

    def click(self):
        """A badge in the graph, of one layer or of a block."""
        graph = self.bench.graph
        nodes = [graph.nodes.index(graph.node(name)) for name in self._layers()]
        site, on = self._random.choice(SITES), self._random.random() < 0.5
        return self.page.act(self.bench.view.graph, action="toggle", nodes=nodes, site=site, index=None, on=on)

    def toggle(self):
        self.bench.toggle(self._random.choice(self._layers()), self._random.choice(SITES))

    def configure(self):
        site, settings = self._random.choice(SITES[:2]), self._random.choice(SETTINGS)
        self.bench.configure(self._layers(2), site, **settings)

    def undo(self):
        return self.page.act(self.bench.view.graph, action="undo")

    def redo(self):
        return self.page.act(self.bench.view.graph, action="redo")

    def go_to(self):
        place = self.bench.history.position + self._random.randint(-5, 8)
        self.bench.go_to(min(max(place, 0), len(self.bench.history) - 1))

    def case(self):
        applied = [case.name for case in self.bench.state.cases]
        if applied and self._random.random() < 0.5:
            self.bench.remove_case(self._random.choice(applied))
        else:
            self.bench.apply_case(self._random.choice(self._cases)())

    def target(self):
        self.bench.view.target.value = self._random.choice(self._targets)

    def mode(self):
        self.bench.set_mode(self._random.choice(("full", "full", "partial")))

    def like(self):
        self.bench.apply_like(self._layers()[0], self._random.choice((None, self._layers())))

    def entry(self):
        count = len(self.bench.spec)
        if count and self._random.random() < 0.6:
            self.bench.remove_entry(self._random.randrange(count))
        else:
            name, match = f"b{self._random.randrange(10)}*_conv1", "glob"
            self.bench.add_entry(name, match=match, quantize_weight=self._random.random() < 0.5)

    def fix(self):
        self.bench.apply_fixes()

    def keep(self):
        self.bench.keep_variant(self._random.choice(VARIANTS))

    def show(self):
        self.bench.show_variant(self._random.choice(VARIANTS))

    def compare(self):
        self.bench.compare(self._random.choice(VARIANTS)).summary()

    def select(self):
        self.bench.select(self._layers() if self._random.random() < 0.8 else [])

    def query(self):
        self.bench.select(self.bench.find(self._random.choice(QUERIES))[:NAMES])

    def color(self):
        if self._random.random() < 0.3:
            self.bench.color_rules({self._random.choice(QUERIES): "orange", "w=4": "blue"})
        else:
            self.bench.color_by(self._random.choice(COLORS))

    def journal(self):
        compile(self.bench.to_script(), "script", "exec")
        compile(self.bench.to_code(), "code", "exec")

    def tab(self):
        tabs = self._random.choice((self.bench.view.side, self.bench.view.work))
        tabs.widget.selected_index = self._random.randrange(len(tabs.panes))
