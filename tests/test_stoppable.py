"""Another thread ends exports, verifications and conversions where Ctrl-C would, and nothing is half done."""

import threading
import time

import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench._interrupts import safe_point
from qdq_workbench.errors import DataError, StoppedError
from qdq_workbench.files import stoppable


@pytest.fixture(scope="module")
def model():
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, use_bias=False, name="conv")(image)
    x = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(x))
    return keras.Model(image, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="pool")(x)))


@pytest.fixture(scope="module")
def q_model(model):
    q_model = qdq.quantize_model(model, target="onnxruntime")
    qdq.calibrate(q_model, np.random.default_rng(0).random((16, 8, 8, 3), np.float32), verbose=False)
    return q_model


class Countdown:
    """Says stop at its n-th call; counts the calls."""

    def __init__(self, last=None):
        self.last, self.calls = last, 0

    def __call__(self):
        self.calls += 1
        return self.calls == self.last


def ways(model, q_model, folder):
    """What can be stopped, each with what shows that it works afterwards."""
    file = qdq.export_onnx(q_model, folder / "known.onnx").path

    def export():
        return qdq.export_onnx(q_model, folder / "model.onnx", target="openvino").path.read_bytes()

    return {
        "quantize_model": lambda: len(qdq.quantize_model(model, target="tensorrt").plan.tensors),
        "retarget": lambda: len(qdq.retarget(q_model, "openvino").plan.tensors),
        "export_onnx": export,
        "export_tflite": lambda: qdq.export_tflite(q_model, folder / "model.tflite").bytes,
        "save_firmware": lambda: np.load(qdq.files.save_firmware(q_model, folder / "integers.npz").path).files,
        "verify_onnx": lambda: qdq.verify_onnx(file, q_model).passed,
        "score_file": lambda: qdq.files.score_file(file, (np.ones((4, 8, 8, 3), np.float32), np.zeros(4))).value,
    }


NAMES = ("quantize_model", "retarget", "export_onnx", "export_tflite", "save_firmware", "verify_onnx", "score_file")


@pytest.mark.parametrize("name", NAMES)
def test_wherever_it_stops_the_next_call_is_as_if_nothing_had_been(model, q_model, tmp_path, name):
    call = ways(model, q_model, tmp_path)[name]
    count = Countdown()
    with stoppable(count):
        expected = call()
    assert count.calls > 0
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for last in sorted({1, count.calls // 2 or 1, count.calls}):
        with pytest.raises(StoppedError, match="as requested"), stoppable(Countdown(last)):
            call()
        # The files of before, and no remains of a temporary one.
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert call() == expected


def test_a_timer_of_another_thread_ends_it(q_model, tmp_path):
    stop, ended = threading.Event(), []

    def work():
        try:
            with stoppable(stop.is_set):
                while True:
                    qdq.export_onnx(q_model, tmp_path / "model.onnx")
        except StoppedError:
            ended.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    threading.Timer(0.5, stop.set).start()
    thread.join(60)
    assert len(ended) == 1
    assert qdq.verify_onnx(qdq.export_onnx(q_model, tmp_path / "model.onnx").path, q_model).passed


def test_it_ends_the_body_that_asked_for_it_and_no_inner_one():
    seen = []
    with pytest.raises(StoppedError), stoppable(Countdown(3)):
        with stoppable(lambda: False):
            safe_point()
        with pytest.raises(StoppedError), stoppable(lambda: True):
            safe_point()
        try:
            with stoppable(lambda: False):
                safe_point()
        except StoppedError:  # the inner body's own, had it been one
            seen.append("inner")
    assert seen == []
    safe_point()  # and nothing is left behind


def test_other_threads_are_left_alone():
    done = []
    with stoppable(lambda: True):
        thread = threading.Thread(target=lambda: (safe_point(), done.append("done")))
        thread.start()
        thread.join()
    assert done == ["done"]


def test_an_error_of_the_function_is_the_callers(q_model, tmp_path):
    def stop():
        raise LookupError("its own")

    with pytest.raises(LookupError, match="its own"), stoppable(stop):
        qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_function_that_uses_the_library_does_not_ask_itself():
    asked = []

    def stop():
        asked.append("once")
        safe_point()

    with stoppable(stop):
        safe_point()
    assert asked == ["once"]


@pytest.mark.parametrize("stop", [None, True, "stop"])
def test_what_is_no_function_is_refused(stop):
    with pytest.raises(DataError, match=r"is_set.*Received: stop="), stoppable(stop):
        pass
