"""The public names: all there, documented, and free of TensorFlow until one is used."""

import dataclasses
import enum
import importlib
import inspect
import json
import subprocess
import sys

import pytest
from named_modules import MODULES
from project import ROOT

import qdq_workbench as qdq
from qdq_workbench import report

PROMISED = """
    build_graph ModelGraph QuantizationSpec LayerConfig plan_placement PlacementPlan quantize_model
    CustomQDQInsertionCase check_is_quantizable_by_layer_name
    ResidualConnectionQDQCase BNQDQCase MaxPoolQDQCase ResNetV1QDQCase ResNetV2QDQCase MobileNetQDQCase
    EfficientNetQDQCase InceptionQDQCase ConcatQDQCase AutoQDQCase
    BaseQuantizeWrapper WeightedBaseQuantizeWrapper NonWeightedBaseQuantizeWrapper
    LastValueQuantizer MovingAverageQuantizer AllValuesQuantizer FixedQuantizer
    calibrate fold_batch_norm split_activations split_attention split_separable_convolutions merge_lora
    strip integer_weights
    export_onnx export_tflite verify_onnx retarget explain numerics QDQError load_model
    sensitivity search SensitivityReport SearchResult layer_costs
    FrameworkInfo keras_post_training_quantization mct
    QuantizeConfig LSQQuantizer LayerQuantizeConfig save_integer_weights load_integer_weights tfmot
""".split()  # noqa: SIM905 - words are easier to compare with the contract than a quoted list
CONTRACT = """
    build_graph ModelGraph QuantizationSpec LayerConfig plan_placement PlacementPlan quantize_model
    CustomQDQInsertionCase check_is_quantizable_by_layer_name
    ResidualConnectionQDQCase BNQDQCase MaxPoolQDQCase ResNetV1QDQCase ResNetV2QDQCase MobileNetQDQCase
    EfficientNetQDQCase InceptionQDQCase ConcatQDQCase AutoQDQCase
    BaseQuantizeWrapper WeightedBaseQuantizeWrapper NonWeightedBaseQuantizeWrapper QuantizeConfig
    LastValueQuantizer MovingAverageQuantizer AllValuesQuantizer FixedQuantizer LSQQuantizer FrameworkInfo
    calibrate fold_batch_norm strip integer_weights export_onnx verify_onnx retarget explain sensitivity search
    numerics QDQError
""".split()  # noqa: SIM905 - words are easier to compare with the contract than a quoted list
HEAVY = ["tensorflow", "keras", "onnx", "onnxruntime", "tf2onnx", "plotly", "matplotlib", "sklearn", "jinja2", "numpy"]
ELSEWHERE = sorted({name for names in MODULES.values() for name in names})
NAMES = [*qdq.__all__, *ELSEWHERE]
FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(qdq, name))]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(qdq, name))]
FILLED = {"LayerConfig", "Cause"}  # by who writes a specification; by `Diagnosis.apply`


def parameters(callable_):
    """Return the names of the parameters that a caller sees."""
    if inspect.isclass(callable_) and issubclass(callable_, (Exception, enum.Enum)):
        return []  # a message, which every exception takes; a value, by which nobody has to ask for a member
    hidden = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    found = inspect.signature(callable_).parameters.values()
    return [item.name for item in found if item.kind not in hidden and item.name != "self"]


def test_every_promised_name_is_found_at_the_root():
    assert [name for name in PROMISED if not hasattr(qdq, name)] == []


def test_the_root_tells_at_most_45_names_and_those_of_the_contract_among_them():
    told = dir(qdq)

    assert len(told) <= 45
    assert sorted(set(CONTRACT) - set(told)) == []
    assert sorted(set(told) & set(ELSEWHERE)) == []


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in MODULES.items() for n in names])
def test_a_name_is_told_in_its_module_and_found_at_the_root(module, name):
    home = importlib.import_module(f"qdq_workbench.{module}")

    assert getattr(qdq, module) is home
    assert getattr(home, name) is getattr(qdq, name)
    assert name in getattr(home, "__all__", [name])


def test_every_name_outside_the_root_is_listed():
    assert sorted(set(qdq._HOMES) - set(qdq.__all__)) == ELSEWHERE
    assert sorted(qdq._NAMED_MODULES) == sorted(MODULES)
    page = (ROOT / "docs/names.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_importing_the_root_loads_no_heavy_library():
    code = "import json, sys; import qdq_workbench; print(json.dumps(sorted(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(finished.stdout)

    assert [name for name in HEAVY if name in modules] == []


def test_an_unknown_name_shows_the_nearest():
    with pytest.raises(AttributeError, match="quantize_model"):
        qdq.quantise_model  # noqa: B018 - asked for on purpose


def test_dir_lists_the_public_names():
    assert sorted(qdq.__all__) == dir(qdq)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_document_arguments_results_and_an_example(name):
    function = getattr(qdq, name)
    text = inspect.getdoc(function)

    arguments = text.split("Args:")[1] if "Args:" in text else ""
    assert [item for item in parameters(function) if f"{item}:" not in arguments] == []
    assert inspect.signature(function).return_annotation == "None" or "Returns:" in text
    assert "raise " not in inspect.getsource(function) or "Raises:" in text
    assert ">>>" in text or name not in PROMISED


@pytest.mark.parametrize("name", CLASSES)
def test_classes_document_what_they_are_made_from(name):
    class_ = getattr(qdq, name)
    texts = " ".join(inspect.getdoc(parent) or "" for parent in class_.__mro__[:-1])

    assert class_.__doc__
    assert [item for item in parameters(class_) if f"{item}:" not in texts] == []


@pytest.mark.parametrize("name", CLASSES)
def test_public_methods_have_docstrings(name):
    class_ = getattr(qdq, name)
    own = [
        item
        for parent in class_.__mro__
        if parent.__module__.startswith("qdq_workbench")
        for item, member in vars(parent).items()
        if not item.startswith("_") and (inspect.isfunction(member) or isinstance(member, (property, classmethod)))
    ]

    assert [item for item in own if not inspect.getdoc(getattr(class_, item))] == []


def test_records_cannot_be_changed():
    """What was planned, measured or reported is shared by many readers: a changed record is a new one."""
    records = {
        kind for name in CLASSES if dataclasses.is_dataclass(kind := getattr(qdq, name)) and name not in FILLED
    } | {kind for name in report.__all__ if dataclasses.is_dataclass(kind := getattr(report, name))}

    assert [kind.__name__ for kind in records if not kind.__dataclass_params__.frozen] == []
