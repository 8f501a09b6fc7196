"""Models that need the user's own code: `--import` brings classes in, `--unsafe` lets Lambda layers be loaded."""

import sys

import keras
import pytest
from keras import layers
from keras.src.saving.serialization_lib import SafeModeScope  # what Keras's public switch sets has no public way back

from qdq_workbench.cli import main as entry
from qdq_workbench.cli.own_code import load_own_code, with_options_named
from qdq_workbench.errors import UnsupportedModelError

OWN = """
import keras

class Halve{name}(keras.layers.Layer):
    def call(self, x):
        return x / 2

@keras.saving.register_keras_serializable("{name}")
def third(x):
    return x / 3
"""

READERS = {
    "plan": ("{model}",),
    "explain": ("{model}",),
    "quantize": ("{model}", "-o", "own_q.keras"),
    "calibrate": ("{model}", "--data", "vectors.npy", "-o", "own_c.keras"),
    "learn-rounding": ("{model}", "--data", "vectors.npz", "-o", "own_r.keras", "--steps", "2"),
    "gptq": ("{model}", "--data", "vectors.npz", "-o", "own_g.keras"),
    "finetune": ("{model}", "--data", "vectors.npz", "-o", "own_f.keras"),
    "export": ("{model}", "-o", "own.onnx"),
    "verify": ("never.onnx", "--model", "{model}"),
    "sensitivity": ("{model}", "--data", "vectors.npy"),
    "diagnose": ("{model}", "--data", "vectors.npy"),
    "search": ("{model}", "--data", "vectors.npz", "--accuracy-floor", "0.5"),
    "certify": ("never.onnx", "--model", "{model}"),
    "import": ("never.onnx", "--model", "{model}"),
    "demo": ("--model", "{model}"),
}


@pytest.fixture(autouse=True)
def as_before():
    """Leave the process as it was: its modules, its paths, what Keras knows and whether it is safe."""
    modules, paths, known = set(sys.modules), list(sys.path), dict(keras.saving.get_custom_objects())
    with SafeModeScope(None):
        yield
    for name in set(sys.modules) - modules:
        if name.startswith("own_"):
            del sys.modules[name]
    sys.path[:] = paths
    keras.saving.get_custom_objects().clear()
    keras.saving.get_custom_objects().update(known)


@pytest.fixture
def own(workplace):
    """Return a function that writes a module with a layer and a function, and a model of both that only it can load."""

    def write(name, suffix=".keras", folder="."):
        text = OWN.format(name=name)
        (workplace / folder).mkdir(exist_ok=True)
        (workplace / folder / f"own_{name}.py").write_text(text)
        known, found = dict(keras.saving.get_custom_objects()), {"__name__": f"own_{name}"}
        exec(text, found)
        x = keras.Input((4,), name="vector")
        hidden = layers.Dense(3, activation=found["third"], name="first")(x)
        model = keras.Model(x, layers.Dense(2, name="head")(found[f"Halve{name}"](name="halve")(hidden)))
        model.save(workplace / f"own_{name}{suffix}")
        keras.saving.get_custom_objects().clear()
        keras.saving.get_custom_objects().update(known)
        return f"own_{name}{suffix}"

    return write


@pytest.fixture
def lambda_model(workplace):
    """Write a model with a Lambda layer; returns its name."""
    x = keras.Input((4,), name="vector")
    hidden = layers.Lambda(lambda t: t * 2, name="double")(layers.Dense(3, name="first")(x))
    keras.Model(x, layers.Dense(2, name="head")(hidden)).save(workplace / "lambda.keras")
    return "lambda.keras"


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_module_of_the_present_folder_brings_its_classes_in(cli, own, suffix):
    model = own("near", suffix)

    code, _, errors = cli("plan", model)
    assert code == 2
    assert "--import MODULE" in errors
    assert errors.rstrip().endswith(f"Received: path='{model}'")

    code, out, errors = cli("plan", model, "--import", "own_near")
    assert code == 0, errors
    assert "head/kernel" in out


def test_what_was_quantized_with_a_class_is_read_with_it(cli, own):
    model = own("both")

    assert cli("quantize", model, "--import", "own_both.py", "-o", "own_both_q.keras")[0] == 0
    code, out, errors = cli("explain", "own_both_q.keras", "--import", "own_both")

    assert code == 0, errors
    assert "head" in out


def test_a_file_in_another_folder_is_imported_with_its_neighbours(cli, own, workplace):
    model = own("far", folder="elsewhere")
    (workplace / "elsewhere/own_package.py").write_text("from own_far import Halvefar\n")

    code, _, errors = cli("plan", model, "--import", "elsewhere/own_package.py")

    assert code == 0, errors
    assert keras.saving.get_custom_objects()["Halvefar"].__module__ == "own_far"


def test_a_file_with_the_name_of_a_module_of_python_leaves_that_alone(cli, own, workplace):
    import json

    model = own("taken")
    (workplace / "json.py").write_text((workplace / "own_taken.py").read_text())

    code, _, errors = cli("plan", model, "--import", "json.py")

    (workplace / "json.py").unlink()
    assert code == 0, errors
    assert sys.modules["json"] is json


@pytest.mark.parametrize("command", READERS)
def test_every_command_that_reads_models_imports_first(cli, workplace, command):
    (workplace / "own_mark.py").write_text("raise RuntimeError('imported')\n")

    code, out, errors = cli(
        command, *(word.format(model="model.keras") for word in READERS[command]), "--import", "own_mark"
    )

    assert (code, out) == (2, "")
    assert "RuntimeError: imported" in errors


def test_these_are_all_the_commands_that_read_models():
    assert {command.name for command in entry.COMMANDS if command.reads_models} == set(READERS)


@pytest.mark.parametrize(
    ("given", "content", "says"),
    [
        ("own_nowhere", None, "no module of that name"),
        ("own_nowhere.inner", None, "no module of that name"),
        ("own_nowhere.py", None, "no such file to import"),
        ("nowhere/own_nowhere.py", None, "no such file to import"),
        ("own_broken", "import own_missing_neighbour", "No module named 'own_missing_neighbour'"),
        ("own_broken.py", "import own_missing_neighbour", "No module named 'own_missing_neighbour'"),
        ("own_wrong", "def f(:", "SyntaxError"),
        ("own_raising", "1 / 0", "ZeroDivisionError: division by zero"),
        ("own_leaving", "raise SystemExit('usage: train.py')", "SystemExit: usage: train.py"),
        ("..", None, "cannot be imported"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_named_error(cli, workplace, given, content, says):
    if content is not None:
        (workplace / f"{given.removesuffix('.py')}.py").write_text(content)

    code, out, errors = cli("plan", "model.keras", "--import", given)

    assert (code, out) == (2, "")
    assert errors.startswith("FileAccessError: ")
    assert says in errors
    assert errors.endswith(f"Received: --import {given}\n")
    assert given.removesuffix(".py") not in sys.modules


def test_lambda_layers_are_loaded_with_unsafe_only(cli, lambda_model):
    code, _, errors = cli("plan", lambda_model)
    assert code == 2
    assert "--unsafe" in errors

    code, out, errors = cli("plan", lambda_model, "--unsafe")
    assert code == 0, errors
    assert "head/kernel" in out
    assert cli("quantize", lambda_model, "--unsafe", "-o", "lambda_q.keras")[0] == 0
    assert cli("explain", "lambda_q.keras")[0] == 0  # unsafe is a state of the process, which this test shares


def test_what_a_lambda_layer_lacks_is_said_and_unsafe_is_not_advised_again(cli, workplace):
    x = keras.Input((4,), name="vector")
    keras.Model(x, layers.Lambda(lambda t: keras.ops.multiply(t, 3.0))(x)).save(workplace / "lacking.keras")
    code, _, errors = cli("plan", "lacking.keras", "--unsafe")
    assert code == 2
    assert "The reason: NameError: name 'keras' is not defined. The code of a Lambda layer knows" in errors
    assert "safe_mode" not in errors
    assert "--unsafe" not in errors
    assert errors.count("--import") == 1

    keras.Model(x, layers.Lambda(doubled)(x)).save(workplace / "named.keras")
    code, _, errors = cli("plan", "named.keras")
    assert (code, errors.count("--unsafe")) == (2, 1)
    assert "The reason: TypeError: Could not locate function 'doubled'" in errors
    assert "Full object config" not in errors


def doubled(tensor):
    return 2 * tensor


def test_lambda_layers_of_hdf5_files_too(cli, lambda_model, workplace):
    keras.models.load_model(lambda_model, safe_mode=False).save(workplace / "lambda.h5")
    code, _, errors = cli("plan", "lambda.h5")
    assert code == 2
    assert "--unsafe" in errors
    assert cli("plan", "lambda.h5", "--unsafe")[0] == 0


def test_advice_is_added_where_it_may_help_alone():
    load_own_code([], unsafe=False)  # an earlier command's --unsafe is a state of the process
    error = UnsupportedModelError("It needs custom_objects. Received: path='x'")
    assert str(with_options_named(error)).endswith("be loaded. Received: path='x'")
    assert with_options_named(UnsupportedModelError("It is a folder. Received: path='x'")) is None
