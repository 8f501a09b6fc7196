"""The graph pane's Python half, without a browser: what is sent, what comes back."""

import gc
import json
import weakref

import keras
import pytest

import qdq_workbench as qdq
from qdq_widgets.graph_comparison import GraphComparison
from qdq_widgets.graph_view import GraphView
from qdq_workbench.graph.model_graph import ModelGraph, Node, Tensor, Weight

_KERNEL = (Weight("kernel", (3, 3, 3, 16)), Weight("bias", (16,)))
_HOSTILE = "<img src=x onerror=alert(1)>" + "n" * 300


def _graph(*lines: tuple[str, str, tuple[str, ...]], dtypes: dict[str, str] | None = None) -> ModelGraph:
    """A graph of nodes `(name, class, inputs)`; Conv2D nodes have a kernel, `conv#1` is a further call of `conv`."""
    nodes = tuple(
        Node(
            name,
            name.split("#")[0],
            class_name,
            inputs=inputs,
            outputs=(name,),
            weights=_KERNEL if class_name == "Conv2D" else (),
        )
        for name, class_name, inputs in lines
    )
    kinds = dtypes or {}
    shape = (None, 8, 8, 16)
    tensors = {node.name: Tensor(node.name, shape, kinds.get(node.name, "float32"), node.name) for node in nodes}
    return ModelGraph("net", nodes, tensors, (nodes[0].name,), (nodes[-1].name,))


_RESIDUAL = (
    ("image", "InputLayer", ()),
    ("conv", "Conv2D", ("image",)),
    ("relu", "Activation", ("conv",)),
    ("left", "Conv2D", ("relu",)),
    ("sum", "Add", ("left", "relu")),
)


@pytest.fixture
def graph() -> ModelGraph:
    return _graph(*_RESIDUAL)


@pytest.fixture
def view(graph):
    view = GraphView(qdq.plan_placement(graph))
    view.sent = []
    view.send = lambda content, buffers=None: view.sent.append(content)
    return view


def _spec(name: str, **wishes: object) -> qdq.QuantizationSpec:
    spec = qdq.QuantizationSpec()
    spec.add(name, **wishes)
    return spec


class TestGraphView:
    def test_a_plan_is_needed(self):
        with pytest.raises(qdq.SpecError, match="GraphView draws a PlacementPlan"):
            GraphView("resnet")

    def test_the_bundle_is_sent_with_the_widget(self, view):
        assert len(str(view._esm)) > 10_000

    def test_set_plan_sends_the_difference_and_keeps_the_state(self, view, graph):
        before = view.plan_state
        changed = []
        view.observe(changed.append, "plan_state")
        view.set_plan(qdq.plan_placement(graph, quantization_spec=_spec("left", quantize_input=False)))
        assert len(view.sent) == 1
        assert view.sent[0]["type"] == "plan"
        assert view.sent[0]["revision"] == 1
        assert view.sent[0]["states"] == {"3": "0:1:0"}
        assert view.plan_state is before
        assert view.plan_state["states"][3] == "0:1:0"
        assert view.plan_state["revision"] == 1
        assert not changed
        assert len(json.dumps(view.sent[0])) < 400

    def test_a_plan_of_another_model_is_refused(self, view):
        other = qdq.plan_placement(_graph(("image", "InputLayer", ()), ("other", "Conv2D", ("image",))))
        with pytest.raises(qdq.SpecError, match="plans of one model"):
            view.set_plan(other)

    @pytest.mark.parametrize(
        ("content", "action"),
        [
            (
                {"action": "toggle", "nodes": [3], "site": "weight", "index": None, "on": True},
                {"action": "toggle", "layers": ["left"], "site": "weight", "index": None, "on": True},
            ),
            (
                {"action": "toggle", "nodes": [4], "site": "input", "index": 1, "on": False},
                {"action": "toggle", "layers": ["sum"], "site": "input", "index": 1, "on": False},
            ),
            ({"action": "undo"}, {"action": "undo"}),
            ({"action": "redo"}, {"action": "redo"}),
            (
                {"action": "apply_like", "source": 1, "nodes": [3], "inputs": [True], "weight": True, "output": False},
                {
                    "action": "apply_like",
                    "source": "conv",
                    "layers": ["left"],
                    "inputs": [True],
                    "weight": True,
                    "output": False,
                },
            ),
        ],
    )
    def test_messages_become_actions(self, view, content, action):
        heard = []
        view.on_action(heard.append)
        view._handle_custom_msg({"type": "action", "id": 7, **content}, [])
        assert heard == [action]
        assert view.sent == [{"type": "done", "id": 7}]

    @pytest.mark.parametrize(
        "content",
        [
            "text",
            {"type": "other"},
            {"type": "action", "action": "format_disk"},
            {"type": "action", "action": "toggle", "nodes": [99], "site": "weight"},
            {"type": "action", "action": "toggle", "nodes": ["conv"], "site": "weight"},
            {"type": "action", "action": "toggle", "nodes": [1], "site": "elsewhere"},
            {"type": "action", "action": "apply_like", "source": -1, "nodes": []},
        ],
    )
    def test_other_messages_do_nothing(self, view, content):
        heard = []
        view.on_action(heard.append)
        view._handle_custom_msg(content, [])
        assert heard == []

    def test_weights_of_a_shared_layer_are_named_once(self):
        graph = _graph(*_RESIDUAL[:2], ("conv#1", "Conv2D", ("conv",)))
        view = GraphView(qdq.plan_placement(graph))
        heard = []
        view.on_action(heard.append)
        for site in ("weight", "input"):
            message = {"type": "action", "id": 1, "action": "toggle", "nodes": [1, 2], "site": site, "on": True}
            view._handle_custom_msg(message, [])
        assert [action["layers"] for action in heard] == [["conv"], ["conv", "conv#1"]]

    def test_an_error_of_a_callback_is_shown(self, view):
        def refuse(action):
            raise qdq.SpecError("No such layer. Received: x")

        view.on_action(refuse)
        view._handle_custom_msg({"type": "action", "id": 3, "action": "undo"}, [])
        assert view.sent == [{"type": "error", "text": "No such layer."}, {"type": "done", "id": 3}]

    def test_a_bug_of_a_callback_is_shown_and_reported(self, view):
        def fail(action):
            raise KeyError("x")

        view.on_action(fail)
        with pytest.raises(KeyError):
            view._on_message(view, {"type": "action", "id": 3, "action": "undo"}, [])
        assert [message["type"] for message in view.sent] == ["error", "done"]

    def test_a_view_that_only_shows_acts_on_nothing(self, graph):
        view = GraphView(qdq.plan_placement(graph), editable=False)
        heard = []
        view.on_action(heard.append)
        view._handle_custom_msg({"type": "action", "id": 3, "action": "undo"}, [])
        assert heard == []

    def test_a_callback_can_be_removed(self, view):
        heard = []
        view.on_action(heard.append)
        view.on_action(heard.append, remove=True)
        view._handle_custom_msg({"type": "action", "id": 3, "action": "undo"}, [])
        assert heard == []

    def test_a_page_that_missed_a_change_gets_the_whole_state(self, view):
        whole = []
        view.send_state = whole.append
        view._handle_custom_msg({"type": "resync"}, [])
        assert whole == ["plan_state"]
        view._handle_custom_msg({"type": "resync", "revision": view.plan_state["revision"]}, [])
        assert whole == ["plan_state"]
        view._handle_custom_msg({"type": "resync", "revision": view.plan_state["revision"] - 1}, [])
        assert whole == ["plan_state"] * 2

    def test_select(self, view):
        view.select("left")
        assert view.selection == ("left",)
        assert view.sent == [{"type": "reveal", "names": ["left"]}]
        view.select([])
        assert view.selection == ()
        with pytest.raises(qdq.SpecError, match="left"):
            view.select(["lefft"])

    def test_colors_by_precision(self, view):
        view.set_colors("precision", {"conv": {"status": "int8"}, "left": {"status": "float", "reason": "no kernel"}})
        assert view.colors["status_of"] == [-1, 0, -1, 1, -1]
        assert view.colors["reasons"][view.colors["why"][3]] == "no kernel"
        with pytest.raises(qdq.SpecError, match="A status is one of"):
            view.set_colors("precision", {"conv": {"status": "int9"}})
        view.set_colors("plan")
        assert view.colors == {"mode": "plan"}

    def test_colors_by_a_metric(self, view):
        values = {"conv": 31.41592653, "left": {"value": 7, "unit": "dB"}, "sum": float("nan"), "relu": float("inf")}
        view.set_colors("sqnr", values, {"title": "SQNR", "better": "high"})
        assert view.colors["values"] == [None, 31.4159, None, 7.0, None]
        assert view.colors["unit"] == "dB"
        assert view.colors["legend"] == {"title": "SQNR", "better": "high"}
        json.dumps(view.colors, allow_nan=False)
        with pytest.raises(qdq.SpecError, match="conv"):
            view.set_colors("sqnr", {"conx": 1.0})

    def test_a_layer_gives_its_colour_to_all_calls(self):
        graph = _graph(*_RESIDUAL[:2], ("conv#1", "Conv2D", ("conv",)))
        view = GraphView(qdq.plan_placement(graph))
        view.set_colors("size", {"conv": 3.0})
        assert view.colors["values"] == [None, 3.0, 3.0]

    def test_hostile_names_travel_as_they_are(self):
        graph = _graph(("image", "InputLayer", ()), (_HOSTILE, "Conv2D", ("image",)))
        view = GraphView(qdq.plan_placement(graph))
        assert view.graph["names"][1] == _HOSTILE
        view.select([_HOSTILE])
        assert view.selection == (_HOSTILE,)

    def test_svg_is_what_the_page_saved(self, view):
        assert view.svg() == ""
        view.request_svg()
        assert view.sent == [{"type": "export_svg"}]
        view.svg_text = "<svg/>"
        assert view.svg() == "<svg/>"


def test_another_target_can_refuse_other_sites():
    image = keras.Input((4,), name="image")
    gate = keras.layers.Softmax(name="gate")(keras.layers.Dense(1, name="dense")(image))
    graph = qdq.build_graph(keras.Model(image, keras.layers.Dense(2, name="head")(gate)))
    view = GraphView(qdq.plan_placement(graph, target="tensorrt"))
    assert ("gate", "output") not in view.disabled_reasons
    view.set_plan(qdq.plan_placement(graph, target="onnxruntime"))
    why = "a pair there would make onnxruntime form an integer kernel that computes wrong numbers"
    assert view.disabled_reasons["gate", "output"] == why
    assert view.disabled_reasons["head", "input"] == why
    assert why in view.graph["refusals"]
    view.set_plan(qdq.plan_placement(graph, target="tensorrt"))
    assert ("gate", "output") not in view.disabled_reasons
    assert why not in view.graph["refusals"]


def test_closed_graphs_are_held_by_nothing(graph):
    plan = qdq.plan_placement(graph)
    made = [GraphView(plan), GraphComparison(plan, plan)]
    held = [weakref.ref(one) for one in made]
    for one in made:
        one.close()
    del made, one
    gc.collect()
    assert [each() for each in held] == [None, None]
