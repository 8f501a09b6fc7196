"""The spec pane: entries in words, what each decides, and what the form hands on."""

from types import SimpleNamespace

import pytest
from mock_graphs import chain

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.pane_states import PaneStates
from qdq_widgets.panes import spec as module
from qdq_widgets.panes.spec import SpecPane, entry_effects, entry_text, parse_indices

GRAPH = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Conv2D", "last"))


class Bench(SimpleNamespace):
    """A bench with a specification, which notes what it is asked for."""

    def __init__(self, *entries):
        spec = qdq.QuantizationSpec()
        for name, wishes in entries:
            spec.add(name, **wishes)
        asked = {name: [] for name in ("add_entry", "remove_entry", "set_spec")}
        super().__init__(
            state=SimpleNamespace(spec=spec),
            spec=spec,
            plan=qdq.plan_placement(GRAPH, quantization_spec=spec),
            pane_states=PaneStates(None),
            asked=asked,
            **{name: lambda *given, _name=name, **named: asked[_name].append((given, named)) for name in asked},
        )


def drawn(*entries):
    pane = SpecPane(Bench(*entries))
    pane.ensure_built()
    pane.refresh()
    return pane


def texts(pane):
    return [row.children[1].value for row in pane.rows.shown]


# ---------------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("text", "indices"), [("2", [2]), (" 0 ;1, 2 ", [0, 1, 2]), ("ALL", None), ("\t", None), ("-1", [-1])]
)
def test_input_numbers_are_read(text, indices):
    assert parse_indices(text) == indices


@pytest.mark.parametrize("text", ["first", "0,", "0 1", "1.5"])
def test_other_texts_are_no_input_numbers(text):
    with pytest.raises(BenchError, match=f"separated by commas, or nothing for all. Received: {text!r}"):
        parse_indices(text)


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        ({}, "inputs + weights"),
        ({"quantization_index": [0, 2]}, "inputs [0, 2] + weights"),
        ({"quantize_input": False, "quantize_output": True}, "weights + output"),
        ({"quantize_input": False, "quantize_weight": False}, "stays in float"),
        ({"quantize_weight": False, "quantize_output": True}, "inputs + output"),
        (
            {"quantize_config": qdq.LayerQuantizeConfig(weight={"num_bits": 4})},
            "inputs + weights (weights: 4 bits)",
        ),
    ],
)
def test_an_entry_says_what_it_quantizes(wishes, text):
    assert entry_text(qdq.LayerConfig("conv", **wishes)) == text


def test_effects_are_counted_by_author_with_those_that_were_overruled():
    spec = qdq.QuantizationSpec()
    spec.add("Conv2D", is_keras_class=True)
    spec.add("*", match="glob", quantize_weight=False)
    spec.add("last", quantize_weight=False)
    effects = entry_effects(qdq.plan_placement(GRAPH, quantization_spec=spec))
    assert effects["spec[2]"] == (1, ("spec[1]", "spec[0]"))
    assert {name for name in effects if name.startswith("spec")} <= {"spec[0]", "spec[1]", "spec[2]"}
    assert sum(count for count, _ in effects.values()) == len(
        qdq.plan_placement(GRAPH, quantization_spec=spec).decisions
    )


# ---------------------------------------------------------------------- the list


def test_every_entry_says_how_many_layers_it_decides():
    pane = drawn(
        ("Conv2D", {"is_keras_class": True, "quantize_weight": False}),
        ("conv", {"quantize_weight": False}),
        ("last", {"quantize_input": False}),
    )
    first, second, third = texts(pane)
    assert "decides nothing: overruled" in first
    assert "decides 1 layer, replaced spec[0]" in second
    assert "<b>&#x27;conv&#x27;</b>" in second
    assert ">spec[2]<" in third
    assert [row.children[0].tooltip for row in pane.rows.shown] == [f"Remove entry {number}" for number in range(3)]
    assert "decides 2 layers" in texts(drawn(("Conv2D", {"is_keras_class": True})))[0]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "No entries: the defaults of the layer classes and the cases decide."),
        (1, ">1 entry<"),
        (3, ">3 entries<"),
        (5, ">5 entries, 2 not shown: filter<"),
    ],
)
def test_the_summary_counts(monkeypatch, count, text):
    monkeypatch.setattr(module, "SHOWN_ENTRIES", 3)
    pane = drawn(*[("conv", {})] * count)
    assert text in pane._summary.value
    assert len(pane.rows.shown) == min(count, 3)


def test_a_filtered_entry_is_removed_by_its_own_place():
    pane = drawn(("last", {}), ("Conv2D", {"is_keras_class": True}), ("conv", {}))
    pane.filter.value = " CONV "
    assert len(pane.rows.shown) == 2
    pane.rows.shown[1].children[0].click()
    assert pane.bench.asked["remove_entry"] == [((2,), {})]
    pane.filter.value = "nothing"
    assert texts(pane) == []
    assert ">3 entries<" in pane._summary.value


# ---------------------------------------------------------------------- the form


@pytest.mark.parametrize(
    ("kind", "is_class", "match"),
    [
        ("layer name", False, "exact"),
        ("class", True, "exact"),
        ("glob", False, "glob"),
        ("regular expression", False, "regex"),
    ],
)
def test_the_form_hands_on_what_is_checked_and_is_emptied(kind, is_class, match):
    pane = drawn()
    pane.name.value, pane.kind.value, pane.indices.value = " conv ", kind, "1"
    pane.weight.value, pane.output.value = False, True
    pane.add.click()
    sites = {"quantize_input": True, "quantize_weight": False, "quantize_output": True, "quantization_index": [1]}
    assert pane.bench.asked["add_entry"] == [(("conv",), {"is_keras_class": is_class, "match": match, **sites})]
    assert (pane.name.value, pane.errors.message) == ("", "")


def test_a_form_that_cannot_be_read_stays_as_it_is():
    pane = drawn()
    pane.name.value, pane.indices.value = "conv", "one"
    pane.add.click()
    assert "separated by commas" in pane.errors.message
    assert (pane.name.value, pane.bench.asked["add_entry"]) == ("conv", [])


def test_a_spec_is_saved_and_loaded_by_its_path(tmp_path):
    pane = drawn(("conv", {"quantize_weight": False}))
    pane.path.value = str(tmp_path / "spec.json")
    pane.save.click()
    assert f"Saved to {pane.path.value}" in pane._summary.value
    pane.load.click()
    (((loaded,), _),) = pane.bench.asked["set_spec"]
    assert loaded.to_dict() == pane.bench.spec.to_dict()
    pane.path.value = str(tmp_path / "none.yaml")
    pane.load.click()
    assert "Cannot read the file" in pane.errors.message
    assert len(pane.bench.asked["set_spec"]) == 1
