"""`calibrate` and `finetune`, on files as a shell user has them."""

import json
import re

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench.calibration.observers import observer_names
from qdq_workbench.cli.inputs import METHODS

# For what does not depend on the optimizer: Adam's variables and updates take longer to trace than the model.
QUICK = ("--optimizer", "sgd", "--learning-rate", "0.1", "--epochs", "2")


@pytest.fixture(scope="module")
def labelled(workplace):
    """Write images whose classes are in their colours: in one file, in two, and split, with numbers or rows."""
    generator = np.random.default_rng(0)
    y = np.arange(96) % 3
    x = generator.normal(size=(96, 8, 8, 2)).astype("float32")
    x[y == 1, ..., 0] += 2
    x[y == 2, ..., 1] += 2
    np.save(workplace / "x.npy", x)
    np.save(workplace / "y.npy", y)
    np.savez(workplace / "split.npz", x_train=x[:64], y_train=y[:64], x_test=x[64:], y_test=y[64:])
    hot = np.eye(3, dtype="float32")[y]
    np.savez(workplace / "hot.npz", x_train=x[:64], y_train=hot[:64], x_test=x[64:], y_test=hot[64:])
    return x, y


@pytest.fixture
def uncalibrated(cli, workplace):
    """Return the name of a quantized model without ranges."""
    if not (workplace / "q_bare.keras").exists():
        assert cli("quantize", "model.keras", "-o", "q_bare.keras")[0] == 0
    return "q_bare.keras"


@pytest.fixture
def calibrated(cli, workplace, uncalibrated, labelled):
    """Return the name of a quantized model with ranges."""
    if not (workplace / "q_ready.keras").exists():
        assert cli("calibrate", uncalibrated, "--data", "x.npy", "-o", "q_ready.keras")[0] == 0
    return "q_ready.keras"


@pytest.fixture
def on_numbers(cli, workplace, calibrated):
    """Return what a training on class numbers says as JSON."""
    said = workplace / "on_numbers.json"
    if not said.exists():
        code, out, errors = cli("finetune", calibrated, "--data", "split.npz", "-o", "side.keras", *QUICK, "--json")
        assert code == 0, errors
        said.write_text(out)
    return said.read_text()


def test_the_commands_know_every_calibration_method():
    assert sorted(METHODS) == sorted(observer_names())


def test_calibrate_does_what_the_function_does(cli, workplace, uncalibrated, labelled):
    code, out, errors = cli(
        "calibrate", uncalibrated, "--data", "x.npy", "-o", "c.keras", "--ranges", "ranges.json", "--steps", "2",
        "--batch-size", "16", "--method", "percentile", "--set", "percentile=99", "--json",
    )  # fmt: skip

    result = json.loads(out)
    expected = keras.models.load_model(workplace / uncalibrated)
    qdq.calibrate(expected, labelled[0], "percentile", steps=2, batch_size=16, percentile=99, verbose=False)
    assert (code, result["samples"], result["batches"]) == (0, 32, 2), errors
    assert {name: tuple(ends) for name, ends in result["ranges"].items()} == expected.activation_ranges()
    assert keras.models.load_model(workplace / "c.keras").activation_ranges() == expected.activation_ranges()
    assert qdq.CalibrationResult.load(workplace / "ranges.json").samples == 32


def test_calibrate_can_leave_the_ranges_moving(cli, workplace, uncalibrated, labelled):
    assert cli("calibrate", uncalibrated, "--data", "x.npy", "-o", "moving.keras", "--moving")[0] == 0

    model = keras.models.load_model(workplace / "moving.keras")
    assert not any(bool(layer.frozen.numpy()) for layer in model.activation_quantizers)


def test_finetune_learns_and_says_how_much(cli, workplace, calibrated):
    code, out, errors = cli(
        "finetune", calibrated, "--data", "split.npz", "-o", "t.keras", "--epochs", "4", "--learning-rate", "0.01",
        "--json",
    )  # fmt: skip

    result = json.loads(out)
    assert (code, result["data"], len(result["history"]["loss"])) == (0, "validation", 4), errors
    assert result["after"]["loss"] < result["before"]["loss"]
    assert result["after"]["accuracy"] > result["before"]["accuracy"]
    trained = keras.models.load_model(workplace / "t.keras")
    with np.load(workplace / "split.npz") as data:
        predicted = np.argmax(trained.predict(data["x_test"], verbose=0), axis=-1)
        assert float(np.mean(predicted == data["y_test"])) == pytest.approx(result["after"]["accuracy"])


def test_float_and_quantized_accuracy_stand_side_by_side(cli, workplace, calibrated, on_numbers):
    result = json.loads(on_numbers)
    model = keras.models.load_model(workplace / calibrated)
    model.quantization_enabled = False
    with np.load(workplace / "split.npz") as data:
        predicted = np.argmax(model.predict(data["x_test"], verbose=0), axis=-1)
        assert float(np.mean(predicted == data["y_test"])) == pytest.approx(result["float"]["accuracy"])
    _, out, _ = cli("finetune", calibrated, "--data", "split.npz", "-o", "side.keras", *QUICK)
    assert out.splitlines()[1].split() == ["on", "validation", "data", "accuracy", "loss"]
    assert [line.split("  ")[0] for line in out.splitlines()[3:]] == [
        "float, before training",
        "quantized, before training",
        "quantized, after training",
    ]


def test_a_share_of_the_data_is_held_out(cli, calibrated):
    command = ["finetune", calibrated, "--data", "x.npy", "--labels", "y.npy", "-o", "held.keras", *QUICK]
    code, out, errors = cli(*command, "--validation-split", "0.25", "--json")
    assert (code, json.loads(out)["data"]) == (0, "validation"), errors
    assert "val_accuracy" in json.loads(out)["history"]
    code, _, errors = cli(*command, "--validation-split", "0.001")
    assert (code, "leaves no sample" in errors) == (2, True)


def test_samples_that_are_trained_on_are_not_called_validation_data(cli, workplace, calibrated, labelled):
    x, y = labelled
    np.savez(workplace / "test_alone.npz", x_test=x, y_test=y)
    code, out, errors = cli("finetune", calibrated, "--data", "test_alone.npz", "-o", "alone.keras", *QUICK)
    assert code == 0, errors
    assert "on training data accuracy" in out
    assert "These samples were trained on. --validation-data FILE or --validation-split 0.1" in out


def test_a_file_of_two_parts_is_read_once(cli, calibrated, monkeypatch):
    read = []
    original = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(
        np.lib.npyio.NpzFile, "__getitem__", lambda file, name: read.append(name) or original(file, name)
    )
    code, _, errors = cli("finetune", calibrated, "--data", "split.npz", "-o", "once.keras", "--loss", "los")
    assert (code, "no loss" in errors) == (2, True)
    assert sorted(read) == ["x_test", "x_train", "y_test", "y_train"]


def test_a_training_that_was_killed_goes_on_as_if_it_had_not_been(cli, workplace, uncalibrated, labelled):
    cli("calibrate", uncalibrated, "--data", "x.npy", "-o", "moving.keras", "--moving")
    command = ["finetune", "moving.keras", "--data", "split.npz", "--json"]
    _, whole, errors = cli(*command, "-o", "whole.keras", "--epochs", "3")
    assert "Epoch 3/3" in errors
    with_file = [*command, "--checkpoint", "run.ckpt", "-o", "resumed.keras"]
    assert cli(*with_file, "--epochs", "1")[0] == 0
    code, resumed, errors = cli(*with_file, "--epochs", "3")
    assert (code, "Epoch 1/" in errors) == (0, False), errors
    assert {**json.loads(resumed), "path": ""} == {**json.loads(whole), "path": ""}
    models = [keras.models.load_model(workplace / f"{name}.keras") for name in ("whole", "resumed")]
    for one, other in zip(*(model.variables for model in models), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "of another training" in cli(*with_file, "--seed", "1")[2]
    (workplace / "run.ckpt").write_bytes((workplace / "run.ckpt").read_bytes()[:-100])
    assert "damaged" in cli(*with_file)[2]


def test_finetune_takes_labels_from_a_file_of_their_own_and_any_loss(cli, calibrated):
    code, out, errors = cli(
        "finetune", calibrated, "--data", "x.npy", "--labels", "y.npy", "--validation-data", "split.npz",
        "--optimizer", "sgd", "--loss", "sparse_categorical_crossentropy", "-o", "t2.keras",
    )  # fmt: skip

    assert code == 0, errors
    assert "on validation data accuracy" in out


def test_one_hot_labels_are_trained_as_the_class_numbers_are(cli, calibrated, on_numbers):
    code, out, errors = cli("finetune", calibrated, "--data", "hot.npz", "-o", "hot.keras", "--json", *QUICK)
    assert code == 0, errors
    numbers, rows = json.loads(on_numbers), json.loads(out)
    assert (numbers["loss"], rows["loss"]) == ("sparse_categorical_crossentropy", "categorical_crossentropy")
    assert rows["after"] == pytest.approx(numbers["after"], abs=1e-4)
    assert rows["from_logits"] == numbers["from_logits"]


def test_the_loss_is_named(cli, calibrated):
    code, out, errors = cli("finetune", calibrated, "--data", "hot.npz", "-o", "t4.keras", "--loss", "mae", *QUICK)
    assert code == 0, errors
    assert "trained on mean absolute error (--loss): on validation data" in out
    code, out, errors = cli("finetune", calibrated, "--data", "hot.npz", "-o", "t4.keras", *QUICK)
    assert re.search(
        r"trained on categorical cross-entropy of \w+ \(one-hot labels\): on validation data accuracy", out
    )


def test_a_training_that_diverges_fails_the_check_and_writes_nothing(cli, workplace, calibrated):
    code, out, _ = cli("finetune", calibrated, "--data", "split.npz", "-o", "diverged.keras", "--learning-rate", "1e39")

    assert code == 1
    assert "diverged" in out
    assert not (workplace / "diverged.keras").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["calibrate", "model.keras", "--data", "x.npy", "-o", "never.keras"], "NotQuantizedError"),
        (["calibrate", "q_ready.keras", "--data", "none.npy", "-o", "never.keras"], "none.npy"),
        (["calibrate", "q_ready.keras", "--data", "x.npy", "-o", "never.keras", "--set", "3=4"], "NAME=VALUE"),
        (["calibrate", "q_ready.keras", "--data", "x.npy", "-o", "never.keras", "--set", "momentum=1"], "momentum"),
        (["finetune", "model.keras", "--data", "split.npz", "-o", "never.keras"], "NotQuantizedError"),
        (["finetune", "q_ready.keras", "--data", "x.npy", "-o", "never.keras"], "needs labels"),
        (["finetune", "q_ready.keras", "--data", "split.npz", "--labels", "y.npy", "-o", "never.keras"], "already"),
        (["finetune", "q_ready.keras", "--data", "split.npz", "-o", "never.keras", "--loss", "los"], "no loss"),
        (["finetune", "q_ready.keras", "--data", "split.npz", "-o", "never.keras", "--optimizer", "a"], "no optimizer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_exits_with_2_and_writes_nothing(cli, workplace, calibrated, arguments, says):
    code, out, errors = cli(*arguments)

    assert (code, out) == (2, "")
    assert says in errors
    assert "Traceback" not in errors
    assert not (workplace / "never.keras").exists()


@pytest.mark.parametrize("command", ["finetune", "learn-rounding"])
def test_a_checkpoint_of_the_name_of_the_output_is_refused(cli, workplace, calibrated, command):
    code, _, errors = cli(
        command, calibrated, "--data", "split.npz", "-o", "same.keras", "--checkpoint", "./same.keras"
    )  # fmt: skip

    assert code == 2
    assert "Two outputs have the same name" in errors
    assert not (workplace / "same.keras").exists()


@pytest.mark.parametrize("value", ["nan", "0", "-1", "inf", "fast"])
def test_a_learning_rate_is_a_positive_number(cli, value, capsys):
    with pytest.raises(SystemExit) as stop:
        cli("finetune", "q.keras", "--data", "split.npz", "-o", "t.keras", "--learning-rate", value)

    assert stop.value.code == 2
    assert "--learning-rate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"y": np.arange(5)}, "as many labels as samples"),
        ({"y": np.arange(8) + 50}, "must be from 0 to 2.*from 50 to 57"),
        ({"y": -np.arange(8)}, "must be from 0 to 2"),
        ({"y": np.array(["cat"] * 8)}, "must be numbers"),
        ({"y": np.float32(1.0)}, "as many labels as samples"),
        ({"y": np.zeros((8, 5), "float32")}, "shape of the output"),
        ({"y": np.full((8, 3), np.nan)}, "labels hold NaN"),
        ({"x": np.zeros((8, 8, 8, 1))}, "its shape must be"),
        ({"x": np.full((8, 8, 8, 2), np.inf)}, "samples hold NaN or infinity"),
        ({"x": np.zeros((0, 8, 8, 2)), "y": np.zeros(0, int)}, "no data"),
        ({"x": np.float32(0.0)}, "a single number"),
    ],
    ids=str,
)
def test_data_that_no_training_can_use_are_refused_before_it(cli, workplace, calibrated, change, says):
    np.savez(workplace / "odd.npz", **{"x": np.zeros((8, 8, 8, 2), "float32"), "y": np.arange(8) % 3, **change})

    code, _, errors = cli("finetune", calibrated, "--data", "odd.npz", "-o", "odd.keras")

    assert code == 2, errors
    assert re.search(says, errors)
    assert not (workplace / "odd.keras").exists()


def test_labels_of_an_archive_are_its_y(cli, calibrated):
    np.savez("labels.npz", x=np.zeros(3), y=np.arange(96) % 3)

    command = ["finetune", calibrated, "--data", "x.npy", "--labels", "labels.npz", "-o", "t3.keras", *QUICK]
    code, out, errors = cli(*command)

    assert code == 0, errors
    assert "accuracy" in out


@pytest.mark.parametrize("setting", ["steps=3", "freeze=0", "q_model=1"])
def test_settings_are_those_of_the_method(cli, uncalibrated, setting):
    code, _, errors = cli("calibrate", uncalibrated, "--data", "x.npy", "-o", "c.keras", "--set", setting)

    assert code == 2
    assert f"Received: '{setting.partition('=')[0]}'" in errors


def test_learn_rounding_does_what_the_function_does(cli, workplace, calibrated, labelled):
    code, out, errors = cli(
        "learn-rounding", calibrated, "--data", "x.npy", "-o", "r.keras", "--steps", "3", "--granularity", "layer",
        "--seed", "1", "--keep-biases", "--checkpoint", "r.npz", "--report", "r.json", "--json",
    )  # fmt: skip

    result = json.loads(out)
    expected = keras.models.load_model(workplace / calibrated)
    report = qdq.learn_rounding(
        expected, labelled[0], steps=3, granularity="layer", seed=1, biases=False, verbose=False
    )
    assert (code, result["written"]) == (0, ["r.keras", "r.json"]), errors
    assert [tuple(unit["layers"]) for unit in result["units"]] == [unit.layers for unit in report.units]
    assert qdq.results.RoundingReport.load(workplace / "r.json").granularity == "layer"
    found, ours = (keras.models.load_model(workplace / "r.keras"), expected)
    assert all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(found.variables, ours.variables, strict=True))
