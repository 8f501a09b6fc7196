"""Cases come back from a folder with the arguments that they were made with."""

import dataclasses
import json
import re

import keras
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.case_files import KnownCases, arguments_of, case_to_dict
from qdq_widgets.errors import BenchError


@pytest.fixture(scope="module")
def model():
    image = keras.Input((8, 8, 2), name="image")
    hidden = layers.MaxPooling2D(name="first")(layers.Conv2D(2, 3, name="conv")(image))
    hidden = layers.MaxPooling2D(name="second")(hidden)
    return keras.Model(image, layers.Dense(2, name="head")(layers.Flatten(name="flat")(hidden)))


class InputOf(qdq.CustomQDQInsertionCase):
    """Quantizes the input of one layer."""

    def __init__(self, layer, *, quantize_output=False):
        self.layer = layer
        self.quantize_output = quantize_output

    def case(self, keras_model, qspec):
        found = qdq.QuantizationSpec()
        found.add(self.layer, quantize_weight=False, quantize_output=self.quantize_output)
        return found


class Choosing(InputOf):
    """Is made with a function, which no file holds."""

    def __init__(self, choose):
        super().__init__(choose("first", "second"))
        self.choose = choose


@dataclasses.dataclass(frozen=True)
class Settings(qdq.CustomQDQInsertionCase):
    names: tuple
    more: dict = dataclasses.field(default_factory=dict)

    def case(self, keras_model, qspec):
        return qdq.QuantizationSpec()


def saved(model, cases, folder):
    bench = Workbench(model, cases=cases)
    bench.save(folder)
    return bench


def test_a_library_case_keeps_its_target(model, tmp_path):
    bench = saved(model, [qdq.AutoQDQCase("onnxruntime")], tmp_path)
    assert bench.plan != Workbench(model, cases=[qdq.AutoQDQCase()]).plan
    loaded = Workbench.load(tmp_path)
    assert loaded.plan == bench.plan
    assert loaded.state.cases[0].target.name == "onnxruntime"
    assert arguments_of(qdq.AutoQDQCase(qdq.get_target("litert"))) == (("litert",), {})


def test_two_of_one_class_stay_two(model, tmp_path):
    bench = saved(model, [InputOf("first"), InputOf("second", quantize_output=True)], tmp_path)
    loaded = Workbench.load(tmp_path, cases=[InputOf("first")])
    assert [vars(case) for case in loaded.state.cases] == [vars(case) for case in bench.state.cases]
    assert loaded.plan == bench.plan
    with pytest.raises(BenchError, match=re.escape("cases=[InputOf('first')]")):
        Workbench.load(tmp_path)


def test_cases_whose_arguments_no_file_holds_are_named(model, tmp_path):
    cases = [Choosing(lambda first, _: first), Choosing(lambda _, second: second)]
    with pytest.warns(UserWarning, match="arguments of Choosing cannot be saved"):
        bench = saved(model, cases, tmp_path)
    with pytest.raises(BenchError, match=re.escape("load(folder, cases=[Choosing(...)])")):
        Workbench.load(tmp_path)
    loaded = Workbench.load(tmp_path, cases=cases)
    assert loaded.state.cases == tuple(cases)
    assert loaded.plan == bench.plan
    assert "Choosing was made with settings of its own" in bench.to_code()


def test_what_was_changed_later_is_not_taken_for_what_was_given():
    changed = InputOf("first")
    changed.layer = "second"
    assert arguments_of(changed) is None


def test_benches_of_earlier_versions_are_read(model, tmp_path):
    bench = saved(model, [qdq.MaxPoolQDQCase(), InputOf("first")], tmp_path)
    data = json.loads((tmp_path / "bench.json").read_text())
    data["version"] = 2
    for step in data["steps"]:
        step["state"]["cases"] = [case["name"] for case in step["state"]["cases"]]
    (tmp_path / "bench.json").write_text(json.dumps(data))
    loaded = Workbench.load(tmp_path, cases=[InputOf("first")])
    assert loaded.plan == bench.plan
    with pytest.raises(BenchError, match=r"cases=\[InputOf\(\)\]"):
        Workbench.load(tmp_path)


def test_arguments_go_through_json():
    case = Settings(("a", ("b", 1.5)), more={"c": [None, True]})
    items = json.loads(json.dumps([case_to_dict(case)]))
    assert KnownCases([Settings(())]).all_of(items) == (case,)
    assert arguments_of(Settings(names={1})) is None
    assert arguments_of(Settings(("a",), more={1: 2})) is None
    with pytest.raises(BenchError, match="cannot be made again: TypeError"):
        KnownCases([InputOf("x")]).all_of([{"name": "InputOf", "arguments": [1, 2], "named": {}}])
