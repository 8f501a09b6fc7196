"""The bench in a script: the same steps as with the mouse."""

import dataclasses
import json
import threading

import numpy as np
import pytest
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench
from qdq_widgets.errors import BenchBusyError, BenchError


class PoolCase(qdq.CustomQDQInsertionCase):
    """Leaves pooling in float."""

    def case(self, keras_model, qspec):
        found = qdq.QuantizationSpec()
        for layer in keras_model.layers:
            if "Pooling" in type(layer).__name__:
                found.add(layer.name, quantize_input=False, quantize_weight=False)
        return found


def rebuilt(bench, **names):
    """Run the code of a bench and return the plan that it makes."""
    scope = {"model": bench.model, **names}
    exec(bench.to_code(), scope)
    return scope["plan"]


def test_the_code_of_a_bench_makes_the_same_plan(bench):
    bench.set_target("onnxruntime")
    bench.apply_case(qdq.ResNetV1QDQCase())
    bench.toggle("conv", "weight")
    bench.add_entry("st*", match="glob", quantize_output=True)
    bench.add_entry("Dense", is_keras_class=True, quantize_weight=False)
    plan = rebuilt(bench)
    assert plan == bench.plan


def test_the_code_names_the_users_own_case(bench):
    bench.apply_case(PoolCase())
    code = bench.to_code()
    assert "PoolCase()" in code
    lines = [line for line in code.splitlines() if not line.startswith("from ")]
    scope = {"model": bench.model, "PoolCase": PoolCase}
    exec("\n".join(lines), scope)
    assert scope["plan"] == bench.plan


def test_hostile_names_survive_the_code():
    name = 'it\'s "quoted" \\ and\ttabbed'
    bench = Workbench(tiny_model(conv=name))
    bench.toggle(name, "input")
    assert rebuilt(bench) == bench.plan


def test_calibrating_scores_fp32_and_ptq_and_leaves_the_float_model_alone(calibrated):
    assert calibrated.stage == "calibrated"
    assert calibrated.calibration.samples == 48
    assert calibrated.curves.metric == "accuracy"
    loss = calibrated.model.evaluate(*tiny_data(32), verbose=0, return_dict=True)["loss"]
    assert calibrated.curves.fp32.loss == pytest.approx(loss, rel=1e-5)
    assert calibrated.curves.ptq.loss != calibrated.curves.fp32.loss
    assert calibrated.q_model.quantization_enabled


def test_another_plan_needs_no_new_data(calibrated):
    first = calibrated.q_model
    calibrated.toggle("conv", "input")
    assert calibrated.stage == "calibrated"
    second = calibrated.q_model
    assert second is not first
    assert not second.uncalibrated_tensors()
    calibrated.undo()
    assert calibrated.q_model is first


def test_fine_tuning_grows_curves_and_keeps_its_model_for_this_plan():
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32))
    seen = []
    bench.subscribe(lambda event: seen.append(event) if event == "curves" else None)
    bench.calibrate()
    before = bench.q_model.get_weights()
    run = bench.fine_tune(2, learning_rate=0.01)
    assert (run.name, run.state, run.epochs) == ("QAT 1", "done", (0.0, 1.0, 2.0))
    assert len(run.scores) == 3
    assert run.scores[0] == bench.curves.ptq
    assert len(seen) > 3
    assert bench.stage == "fine-tuned"
    assert any(not np.array_equal(a, b) for a, b in zip(before, bench.q_model.get_weights(), strict=True))
    tuned = bench.q_model
    bench.toggle("conv", "input")
    assert bench.stage == "calibrated"
    bench.undo()
    assert bench.q_model is tuned

    more = bench.fine_tune(1, resume=True, name="more")
    assert more.epochs == (0.0, 1.0)
    assert more.scores[0] == run.scores[-1]
    assert [r.name for r in bench.curves.runs] == ["QAT 1", "more"]
    assert tuned is not bench.q_model
    variant = bench.keep_variant("tuned")
    assert (variant.accuracy, variant.stage) == (more.last.metrics["accuracy"], "fine-tuned")


def test_what_is_missing_is_said_with_the_way_out(model):
    bench = Workbench(model)
    with pytest.raises(BenchError, match="calibration_data="):
        bench.calibrate()
    with pytest.raises(BenchError, match="train_data="):
        bench.fine_tune(1)
    with pytest.raises(BenchError, match=r"wb.calibrate\(\)"):
        bench.export("model.onnx")
    with pytest.raises(BenchError, match="Export one first"):
        bench.show_netron()
    with pytest.raises(BenchError, match="epochs must be"):
        bench.fine_tune(0)
    assert bench.curves.runs == () or bench.curves.runs[-1].state == "failed"


def test_an_uncompiled_model_without_a_loss_says_which_argument_to_give():
    import keras

    image = keras.Input((6, 6, 2))
    model = keras.Model(image, keras.layers.Dense(3)(keras.layers.Flatten()(image)))
    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32))
    bench.calibrate()  # ranges need no loss
    with pytest.raises(BenchError, match="loss="):
        bench.fine_tune(1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    other = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), loss=loss, metrics=["accuracy"])
    assert other.fine_tune(1).state == "done"


def test_labels_are_needed_to_train(model):
    with pytest.raises(BenchError, match="inputs without labels"):
        Workbench(model, train_data=tiny_data()[0]).fine_tune(1)


def test_training_can_be_stopped_and_the_state_changed_meanwhile(model):
    bench = Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32))
    errors, going = [], threading.Event()
    bench.subscribe(lambda event: going.set() if bench.curves.runs and bench.curves.runs[-1].loss_trace else None)
    plan = bench.plan
    bench.jobs.start(lambda: bench.fine_tune(500), errors.append)
    assert going.wait(60)
    with pytest.raises(BenchBusyError, match="fine-tuning"):
        bench.calibrate()
    with pytest.raises(BenchBusyError):
        bench.jobs.start(lambda: bench.fine_tune(1), errors.append)
    bench.toggle("conv", "input")  # the plan may change: training keeps to its own
    bench.jobs.stop()
    assert bench.jobs.wait(60)
    assert errors == []
    assert bench.curves.runs[-1].state == "stopped"
    assert bench.curves.runs[-1].pairs == len(plan.tensors)
    assert bench.stage == "planned"
    bench.undo()
    assert bench.stage == "fine-tuned"


def test_a_stopped_calibration_keeps_what_it_read(model):
    bench = Workbench(model, calibration_data=tiny_data()[0])
    bench.subscribe(lambda event: bench.jobs.stop() if event == "job" and bench.jobs.current else None)
    assert bench.calibrate(batch_size=8).batches == 1


def test_a_bench_comes_back_from_its_folder(tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32))
    bench.apply_case(qdq.ResNetV1QDQCase())
    bench.apply_case(PoolCase())
    bench.toggle("conv", "input")
    bench.calibrate()
    bench.fine_tune(1)
    bench.keep_variant("mine")
    bench.toggle("head", "weight")
    bench.undo()
    bench.save(tmp_path / "bench")

    with pytest.raises(BenchError, match=r"cases=\[PoolCase\(\)\]"):
        Workbench.load(tmp_path / "bench")
    other = Workbench.load(tmp_path / "bench", cases=[PoolCase()], train_data=tiny_data())
    assert other.plan == bench.plan
    assert [step.label for step in other.history.steps] == [step.label for step in bench.history.steps]
    assert other.curves == bench.curves
    assert [variant.name for variant in other.variants] == ["mine"]
    assert other.calibration == bench.calibration
    assert other.stage == "fine-tuned"
    images = tiny_data()[0]
    np.testing.assert_array_equal(other.q_model.predict(images, verbose=0), bench.q_model.predict(images, verbose=0))
    other.redo()
    assert other.history.present.label == "toggle head: weight"

    restored = Workbench(bench.model, cases=[PoolCase()])
    assert restored.load(tmp_path / "bench") is restored
    assert restored.plan == bench.plan
    with pytest.raises(BenchError, match="only be given to a new bench"):
        restored.load(tmp_path / "bench", train_data=tiny_data())


def test_a_folder_that_holds_no_bench_says_so(tmp_path, bench):
    with pytest.raises(BenchError, match="holds no bench"):
        Workbench.load(tmp_path)
    (tmp_path / "bench.json").write_text(json.dumps({"format": "something else"}))
    with pytest.raises(BenchError, match="of this version"):
        bench.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchError, match="cannot be written"):
        bench.save(tmp_path / "file" / "bench")


def test_the_folder_of_another_model_changes_nothing(tmp_path, bench):
    other = Workbench(tiny_model(conv="other_conv"))
    other.toggle("other_conv", "input")
    other.save(tmp_path / "bench")
    before = bench.plan
    with pytest.raises(qdq.SpecError):
        bench.load(tmp_path / "bench")
    assert bench.plan is before


def test_a_variant_leads_back_to_its_state(bench):
    bench.toggle("conv", "input")
    plan = bench.plan
    bench.keep_variant("float conv")
    bench.undo()
    bench.show_variant("float conv")
    assert bench.plan == plan
    variant = bench.variants[0]
    assert (variant.quantized, variant.computing) == (2, 4)
    with pytest.raises(BenchError, match="no such variant"):
        bench.show_variant("gone")
    with pytest.raises(BenchError, match="needs a name"):
        bench.keep_variant(" ")


def test_a_fix_makes_the_layer_int8(bench):
    bench.set_target("onnxruntime")
    bench.toggle("stem", "input")
    floats = [entry for entry in bench.explanation.layers if entry.status != "int8" and entry.fix]
    assert floats
    bench.apply_fix(floats[0].layer)
    assert bench.explanation.for_layer(floats[0].layer).status == "int8"
    with pytest.raises(BenchError, match="no fix"):
        bench.apply_fix(floats[0].layer)


def test_importing_the_package_imports_no_heavy_library():
    import subprocess
    import sys

    code = "import sys, qdq_widgets; print([m for m in ('tensorflow', 'ipywidgets', 'plotly') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_bench_in_a_script_imports_no_plotting_and_no_widgets(fresh):
    code = (
        "import sys, keras; from qdq_widgets import Workbench\n"
        "x = keras.Input((2,)); wb = Workbench(keras.Model(x, keras.layers.Dense(1, name='d')(x)))\n"
        "wb.toggle('d', 'input'); wb.to_code()\n"
        "print([m for m in ('ipywidgets', 'plotly', 'anywidget', 'netron') if m in sys.modules])"
    )
    done = fresh.run(code)
    assert done.stdout.strip() == "[]", done.stderr[-2000:]


def test_an_altered_target_is_refused_and_the_bench_stays(bench):
    plan, altered = bench.plan, dataclasses.replace(qdq.get_target("onnxruntime"), bias="float")
    with pytest.raises(BenchError, match="takes the name of a target"):
        bench.set_target(altered)
    assert bench.plan is plan


def test_a_case_that_depends_on_the_target_follows_the_bench(bench):
    from qdq_widgets.panes.cases import CasesPane

    bench.apply_case(qdq.AutoQDQCase())
    assert "# AutoQDQCase" not in bench.to_code()
    assert rebuilt(bench) == bench.plan
    bench.set_target("onnxruntime")
    assert rebuilt(bench) == bench.plan
    bench.view.side.open(CasesPane)
    pane = bench.view.pane(CasesPane)
    pane.picker.value = "AutoQDQCase"
    assert "ONNX Runtime" in pane._info.value
    bench.apply_case(qdq.AutoQDQCase("tensorrt"))
    assert "qdq.AutoQDQCase('tensorrt')" in bench.to_code()
    assert rebuilt(bench) == bench.plan


def test_the_height_of_the_graph_can_be_chosen(model):
    bench = Workbench(model, height=700)
    assert bench.view.graph.height == 700
    assert "max-height: 676px" in bench.view.widget.children[0].value
    for height in (10, 560.0, True, "tall"):
        with pytest.raises(BenchError, match="whole number of pixels"):
            Workbench(model, height=height)
