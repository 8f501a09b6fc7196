"""The code that a bench writes: its present plan with all work on it, and every step as a script that runs again."""

import json

import numpy as np
import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError
from qdq_widgets.panes.files import FilesPane


@pytest.fixture(scope="module")
def worked(tmp_path_factory):
    """A bench that was calibrated, trained and exported, and the folder of its file."""
    folder = tmp_path_factory.mktemp("worked")
    train, validation = tiny_data(), tiny_data(32)
    bench = Workbench(
        tiny_model(), train_data=train, validation_data=validation, target="onnxruntime", cases=[qdq.ResNetV1QDQCase()]
    )
    with pytest.raises(BenchError):
        bench.toggle("image", "weight")  # refused: no step
    bench.toggle(["stem", "conv"], "weight", on=False)
    bench.undo()
    bench.configure("conv", "weight", num_bits=4)
    bench.add_entry("head", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 8, "symmetric": True}))
    bench.calibrate("percentile", percentile=99.0, batch_size=16)
    bench.fine_tune(1, learning_rate=1e-3, batch_size=16)
    bench.export(folder / "worked.onnx")
    return bench, {"model": bench.model, "train_data": train, "validation_data": validation}


def test_the_code_does_all_that_was_done(worked):
    bench, names = worked
    code = bench.to_code()
    assert "q_model.compile(keras.optimizers.Adam(0.001), loss=model.loss, metrics=['accuracy'])" in code
    assert "q_model.fit(train_data[0], train_data[1], batch_size=16, epochs=1)" in code
    bench.exports[0].path.unlink()
    scope = dict(names)
    exec(code, scope)
    assert scope["plan"] == bench.plan
    assert bench.exports[0].path.exists()
    assert float(scope["q_model"].optimizer.learning_rate) == pytest.approx(1e-3)


def test_the_code_of_a_calibrated_plan_finds_the_same_ranges(calibrated):
    scope = {"model": calibrated.model, "train_data": tiny_data()}
    exec(calibrated.to_code(), scope)
    assert "fit(" not in calibrated.to_code()
    assert scope["q_model"].activation_ranges() == calibrated.q_model.activation_ranges()


def test_the_code_of_a_plan_without_work_is_the_plan(bench):
    assert "calibrate" not in bench.to_code()


def test_every_step_as_a_script_runs_again(worked):
    bench, names = worked
    script = bench.to_script()
    assert "wb.undo()" in script
    assert "'image'" not in script
    assert "cases=[qdq.ResNetV1QDQCase()]" in script
    scope = dict(names)
    exec(script, scope)
    again = scope["wb"]
    assert again.plan == bench.plan
    assert [step.label for step in again.history.steps] == [step.label for step in bench.history.steps]
    assert again.stage == "fine-tuned"
    assert again.calibration.ranges == bench.calibration.ranges
    assert again.to_script() == script


def test_a_training_that_was_stopped_is_taken_again_as_far_as_it_went():
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32))
    bench.calibrate()

    def stop_in_the_second_epoch(event):
        if event == "curves" and bench.curves.runs and len(bench.curves.runs[-1].epochs) > 1:
            bench.jobs.stop()

    bench.subscribe(stop_in_the_second_epoch)
    run = bench.fine_tune(900)
    assert run.state == "stopped"
    call = bench.journal.last("fine_tune")
    assert 1 <= call.kwargs["epochs"] <= 2
    assert f"wb.fine_tune(epochs={call.kwargs['epochs']})  # stopped after" in bench.to_script()
    assert f"epochs={call.kwargs['epochs']})  # stopped after" in bench.to_code()


@pytest.fixture(scope="module")
def trained_twice():
    """A bench with a plan that was trained, and a second plan, the present one, calibrated otherwise and trained."""
    bench = Workbench(tiny_model(), train_data=tiny_data(), target="onnxruntime")
    bench.calibrate("percentile", percentile=99.0, batch_size=16)
    bench.fine_tune(1, learning_rate=1e-3, batch_size=16)
    bench.configure("conv", "weight", per_axis=False)
    bench.calibrate("mse", steps=1)
    bench.fine_tune(2, batch_size=24)
    return bench


@pytest.fixture(scope="module")
def never_calibrated():
    """A bench that was trained without a calibration, for tests that only read."""
    bench = Workbench(tiny_model(), train_data=tiny_data())
    bench.fine_tune(1)
    return bench


def test_the_code_is_of_the_work_on_the_present_plan(trained_twice, tmp_path):
    bench = trained_twice
    bench.export(tmp_path / "second.npz", c_header=tmp_path / "second.h")
    second = bench.to_code()
    assert "'mse', steps=1, batch_size=32" in second
    assert "batch_size=24, epochs=2" in second
    assert f"save_firmware(q_model, {str(tmp_path / 'second.npz')!r}, c_header=" in second
    bench.undo()
    assert bench.stage == "fine-tuned"
    first = bench.to_code()
    assert "'percentile', steps=16, batch_size=16" in first
    assert "compile(keras.optimizers.Adam(0.001)" in first
    assert "batch_size=16, epochs=1" in first
    assert "second" not in first
    scope = {"model": bench.model, "train_data": tiny_data()}
    exec(first, scope)
    assert scope["q_model"].activation_ranges().keys() == bench.q_model.activation_ranges().keys()
    bench.redo()
    assert bench.to_code() == second


def test_the_code_leaves_a_file_of_other_weights_out(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data(), target="onnxruntime")
    bench.calibrate()
    bench.export(tmp_path / "first.npz")
    assert "first.npz" in bench.to_code()
    bench.fine_tune(1)
    assert "first.npz" not in bench.to_code()
    bench.export(tmp_path / "tuned.onnx", float_type="float16", verify=False)
    assert f"export_onnx(q_model, {str(tmp_path / 'tuned.onnx')!r}, float_type='float16')" in bench.to_code()
    assert "verify_onnx" not in bench.to_code()


def test_a_training_that_went_on_is_repeated_from_its_beginning():
    bench = Workbench(tiny_model(), train_data=tiny_data())
    bench.calibrate()
    bench.fine_tune(1, batch_size=16)
    bench.fine_tune(2, resume=True, batch_size=24)
    code = bench.to_code()
    assert code.index("batch_size=16, epochs=1") < code.index("batch_size=24, epochs=2")
    assert code.count("import keras") == 1
    bench.fine_tune(3)
    assert code.count("fit(") == 2
    assert bench.to_code().count("fit(") == 1


def test_weights_that_were_trained_without_a_calibration_have_code(never_calibrated):
    code = never_calibrated.to_code()
    assert "calibrate(" not in code
    scope = {"model": never_calibrated.model, "train_data": tiny_data()}
    exec(code, scope)
    assert scope["plan"] == never_calibrated.plan


def test_the_code_of_a_loaded_bench_is_that_of_the_saved_one(trained_twice, tmp_path):
    trained_twice.save(tmp_path / "kept")
    loaded = Workbench.load(tmp_path / "kept", train_data=tiny_data())
    code = loaded.to_code()
    assert "'mse', steps=1, batch_size=32" in code
    assert "batch_size=24, epochs=2" in code
    assert "earlier version" not in code


def test_the_code_says_where_the_training_is_not_known(never_calibrated, tmp_path):
    never_calibrated.save(tmp_path / "kept")
    file = tmp_path / "kept" / "bench.json"
    held = json.loads(file.read_text())
    del held["work"]["present"]["fits"]
    file.write_text(json.dumps(held))
    code = Workbench.load(tmp_path / "kept", train_data=tiny_data()).to_code()
    assert "# The weights were trained by an earlier version of the bench" in code


def test_a_bench_that_goes_on_knows_the_files_of_its_models(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data(), target="onnxruntime")
    bench.calibrate()
    bench.export(tmp_path / "first.onnx")
    other = Workbench(bench.model, train_data=tiny_data(), target="onnxruntime")
    other.continue_from(bench)
    assert "first.onnx" in other.to_code()
    assert other.exports == ()


class OwnCase(qdq.CustomQDQInsertionCase):
    """A case of a user, which no file can make again."""

    def __init__(self, layers):
        self.layers = layers

    def case(self, model, spec):
        added = qdq.QuantizationSpec()
        added.add(model.layers[-1].name, quantize_weight=False)
        return added


def test_the_script_of_a_loaded_bench_names_what_loading_needs(tmp_path):
    import keras

    def own_loss(y_true, y_pred):
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred))

    case, rate = OwnCase(np.arange(2)), keras.optimizers.SGD(0.01)
    bench = Workbench(tiny_model(), train_data=tiny_data(), loss=own_loss, optimizer=rate, cases=[case])
    with pytest.warns(UserWarning, match="cannot be saved"):
        bench.save(tmp_path / "kept")
    loaded = Workbench.load(tmp_path / "kept", train_data=tiny_data(), loss=own_loss, cases=[case])
    script = loaded.to_script()
    assert "loss=loss" in script
    assert "cases=[OwnCase(" in script
    assert "# loss: function that you gave" in script
    bench.load(tmp_path / "kept")
    again = bench.to_script()
    assert "loss=loss, optimizer=optimizer" in again
    assert "cases=[OwnCase(" in again
    loaded.fine_tune(1)
    code = loaded.to_code()
    assert "# loss: the own_loss of the bench; define it before these lines." in code
    assert "# optimizer: the SGD of the bench; define it before these lines." in code


def test_objects_that_no_text_rebuilds_are_named(model):
    import keras

    bench = Workbench(model, train_data=tiny_data(), optimizer=keras.optimizers.SGD(0.01), loss="mse")
    script = bench.to_script("float_model")
    assert "# train_data: the data that you gave" in script
    assert "# optimizer: SGD that you gave" in script
    assert "wb = Workbench(float_model, train_data=train_data, loss='mse', optimizer=optimizer" in script


def test_a_script_goes_on_from_a_folder_and_from_an_earlier_bench(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data())
    bench.toggle("conv", "input")
    bench.save(tmp_path / "kept")
    loaded = Workbench.load(tmp_path / "kept", train_data=tiny_data())
    loaded.toggle("stem", "weight")
    scope = {"train_data": tiny_data()}
    exec(loaded.to_script(), scope)
    assert scope["wb"].plan == loaded.plan
    other = Workbench(bench.model, train_data=tiny_data())
    other.continue_from(bench)
    assert "wb.toggle('conv', 'input')" in other.to_script()


def test_the_pane_shows_either_and_copies_what_it_shows(bench):
    bench.view.work.open(FilesPane)
    pane = bench.view.pane(FilesPane)
    bench.toggle("conv", "weight")
    assert pane.copy.text == pane.code.value == bench.to_code()
    pane.what.value = "steps"
    assert pane.copy.text == pane.code.value == bench.to_script()
    bench.undo()
    assert pane.code.value.endswith("wb.undo()\n")


def test_hostile_names_survive_the_script():
    name = 'it\'s "quoted" \\ and\ttabbed'
    bench = Workbench(tiny_model(conv=name), train_data=(np.zeros((4, 6, 6, 2), "float32"), np.zeros(4)))
    bench.toggle(name, "input")
    scope = {"model": bench.model, "train_data": tiny_data()}
    exec(bench.to_script(), scope)
    assert scope["wb"].plan == bench.plan


def test_numbers_of_numpy_are_numbers_of_the_script(bench):
    bench.set_metric("time", {"conv": np.float64(0.31), "stem": 0.5}, "ms")
    scope = {"model": bench.model, "train_data": tiny_data(), "validation_data": tiny_data(32)}
    exec(bench.to_script(), scope)
    assert scope["wb"].metrics["time"].values == {"conv": 0.31, "stem": 0.5}
