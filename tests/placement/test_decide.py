import pytest
from mock_graphs import KERNEL, GraphMaker, chain, residual

from qdq_workbench.errors import ModeError, PlacementConflictError, SpecError
from qdq_workbench.placement import defaults
from qdq_workbench.placement.decide import decide
from qdq_workbench.spec import QuantizationSpec


def spec_of(*entries):
    spec = QuantizationSpec()
    for entry in entries:
        spec.add(**entry)
    return spec


@pytest.fixture
def graph():
    return residual("Conv2D", "BatchNormalization")


def test_defaults(graph):
    decisions = decide(graph, "full", None, [])
    assert decisions["conv2d"].input_indices == (0,)
    assert decisions["conv2d"].quantize_weight
    assert decisions["conv2d"].author == "default"
    for name in ("add", "batchnormalization", "stem"):
        assert decisions[name].is_float
    assert "off by default for Add" in decisions["add"].reason
    assert "nothing of ReLU (activation) is quantized by default" in decisions["stem"].reason
    assert "image" not in decisions


def test_another_default_decides_anew(graph, monkeypatch):
    before = decide(graph, "full", None, [])["stem"]
    for name in ("_DEFAULTS", "_REGISTERED", "_HISTORY"):  # copies: the other tests keep their defaults
        monkeypatch.setattr(defaults, name, getattr(defaults, name).copy())
    assert decide(graph, "full", None, [])["stem"] is before
    defaults.register_default("ReLU", defaults.LayerDefault(quantize_input=True, quantize_weight=False))
    assert decide(graph, "full", None, [])["stem"].input_indices == (0,)
    assert decide(graph, "partial", spec_of({"name": "add"}), [])["stem"].is_float


def test_partial_mode_takes_only_what_is_named(graph):
    decisions = decide(graph, "partial", spec_of({"name": "add"}), [])
    assert decisions["add"].input_indices == (0, 1)
    assert decisions["conv2d"].is_float


def test_a_name_beats_a_class_and_says_whom_it_replaced(graph):
    spec = spec_of(
        {"name": "conv2d", "quantize_weight": False},
        {"name": "Conv2D", "is_keras_class": True, "quantize_input": False},
    )
    decision = decide(graph, "full", spec, [])["conv2d"]
    assert (decision.input_indices, decision.quantize_weight) == ((0,), False)
    assert (decision.author, decision.replaced) == ("spec[0]", ("spec[1]",))


def test_of_two_entries_for_one_name_the_later_wins(graph):
    spec = spec_of(
        {"name": "conv2d"}, {"name": "conv*", "match": "glob", "quantize_input": False, "quantize_weight": False}
    )
    decision = decide(graph, "full", spec, [])["conv2d"]
    assert decision.is_float
    assert (decision.author, decision.replaced) == ("spec[1]", ("spec[0]",))


def test_class_entries_honour_their_flags(graph):
    spec = spec_of({"name": "Conv2D", "is_keras_class": True, "quantize_input": False})
    decision = decide(graph, "full", spec, [])["conv2d"]
    assert (decision.input_indices, decision.quantize_weight) == ((), True)


def test_a_case_beats_the_default(graph):
    decision = decide(graph, "full", None, [("MyCase", spec_of({"name": "conv2d", "quantize_weight": False}))])[
        "conv2d"
    ]
    assert (decision.author, decision.replaced) == ("MyCase", ("default",))
    assert not decision.quantize_weight


@pytest.mark.parametrize("by_class", [True, False])
def test_entries_beat_cases(graph, by_class):
    entry = {"name": "Add" if by_class else "add", "is_keras_class": by_class, "quantize_input": False}
    case = ("MyCase", spec_of({"name": "add", "quantization_index": [1]}))
    decision = decide(graph, "full", spec_of(entry), [case])["add"]
    assert decision.is_float
    assert decision.author == "spec[0]"
    assert "MyCase" in decision.replaced


def test_a_case_fills_in_which_inputs_where_a_class_entry_leaves_it_open(graph):
    case = ("MyCase", spec_of({"name": "add", "quantization_index": [1]}))
    open_entry = spec_of({"name": "Add", "is_keras_class": True})
    assert decide(graph, "full", open_entry, [case])["add"].input_indices == (1,)
    closed = spec_of({"name": "Add", "is_keras_class": True, "quantization_index": [0]})
    assert decide(graph, "full", closed, [case])["add"].input_indices == (0,)


def test_cases_that_disagree_are_both_named(graph):
    one = ("One", spec_of({"name": "add", "quantization_index": [0]}))
    other = ("Other", spec_of({"name": "add", "quantization_index": [1]}))
    with pytest.raises(PlacementConflictError, match=r"One says inputs \[0\].*Other says inputs \[1\]"):
        decide(graph, "full", None, [one, other])


def test_cases_that_agree_are_fine(graph):
    one = ("One", spec_of({"name": "add"}))
    other = ("Other", spec_of({"name": "add", "quantization_index": [1, 0], "quantize_weight": False}))
    assert decide(graph, "full", None, [one, other])["add"].author == "One"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "cnov2d"}, "Did you mean 'conv2d'"),
        ({"name": "Conv3D", "is_keras_class": True}, "Conv2D"),
        ({"name": "Conv2D"}, "pass is_keras_class=True"),
        ({"name": "nothing*", "match": "glob"}, "no layer of that name"),
        ({"name": "add", "quantization_index": [2]}, "has 2 inputs"),
    ],
)
def test_entries_that_cannot_be_applied(graph, entry, message):
    with pytest.raises(SpecError, match=message):
        decide(graph, "full", spec_of(entry), [])
    with pytest.raises(SpecError, match=f"MyCase.*{message}"):
        decide(graph, "full", None, [("MyCase", spec_of(entry))])


def test_an_entry_made_by_hand_is_checked_too(graph):
    spec = spec_of({"name": ".*"})
    spec.layers[0].name, spec.layers[0].match = "(", "regex"
    with pytest.raises(SpecError, match=r"spec\[0\].*cannot be parsed"):
        decide(graph, "full", spec, [])


@pytest.mark.parametrize("spec", [None, spec_of({"name": "conv2d", "quantize_input": False, "quantize_weight": False})])
def test_partial_mode_with_nothing_left(graph, spec):
    with pytest.raises(SpecError, match="Nothing is left to quantize"):
        decide(graph, "partial", spec, [])


def test_unknown_mode(graph):
    with pytest.raises(ModeError, match="Did you mean 'partial'"):
        decide(graph, "partly", None, [])


def test_subclasses_behave_as_their_parents():
    maker = GraphMaker()
    maker.add("MyConv", "mine", "image", bases=("Conv2D", "BaseConv"), weights=KERNEL)
    graph = maker.graph("mine")
    assert decide(graph, "full", None, [])["mine"].input_indices == (0,)
    assert decide(graph, "partial", spec_of({"name": "Conv2D", "is_keras_class": True}), [])["mine"].quantize_weight


def test_a_selector_may_name_one_call_of_a_shared_layer():
    maker = GraphMaker()
    maker.add("MaxPooling2D", "pool", "image")
    maker.add("MaxPooling2D", "pool#1", "pool", layer="pool")
    decisions = decide(maker.graph("pool#1"), "partial", spec_of({"name": "pool#1"}), [])
    assert (decisions["pool"].input_indices, decisions["pool#1"].input_indices) == ((), (0,))


def test_class_aliases():
    graph = chain(("MaxPooling2D", "pool"))
    assert decide(graph, "full", spec_of({"name": "MaxPool2D", "is_keras_class": True}), [])["pool"].input_indices == (
        0,
    )


def test_an_input_of_the_model_has_an_output_only(graph):
    decisions = decide(graph, "full", spec_of({"name": "image", "quantize_output": True}), [])
    assert decisions["image"].quantize_output
    assert decisions["image"].input_indices == ()
    with pytest.raises(SpecError, match=r"'image' is an input of the model.*quantize_output=True"):
        decide(graph, "full", spec_of({"name": "image"}), [])
    assert decide(graph, "full", spec_of({"name": "*", "match": "glob"}), [])["add"].input_indices == (0, 1)


def test_an_output_of_integers_cannot_be_quantized():
    maker = GraphMaker()
    maker.add("Argmax", "argmax", "image", dtype="int32", is_operation=True)
    with pytest.raises(SpecError, match="holds int32 values"):
        decide(maker.graph("argmax"), "full", spec_of({"name": "argmax", "quantize_output": True}), [])
