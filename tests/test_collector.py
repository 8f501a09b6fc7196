"""The garbage collector is held back while models are built and written, and never stays so."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench._collector import collector_paused
from qdq_workbench.errors import SpecError, UncalibratedError


def small_model() -> keras.Model:
    image = keras.Input((4,), name="image")
    return keras.Model(image, keras.layers.Dense(2, name="head")(image))


def quantize(model: keras.Model, folder: Any) -> None:
    qdq.quantize_model(model)


def export(model: keras.Model, folder: Any) -> None:
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, np.ones((2, 4), np.float32), verbose=False)
    qdq.export_onnx(q_model, folder / "model.onnx")


def fold(model: keras.Model, folder: Any) -> None:
    qdq.fold_batch_norm(model)


@pytest.mark.parametrize(
    ("work", "inside"),
    [
        (fold, "qdq_workbench.conversion.engine.rebuild.float_class"),
        (quantize, "qdq_workbench.conversion.engine.quantize_model.build_quantized"),
        (export, "qdq_workbench.export.onnx_export.build_proto"),
    ],
)
def test_collector_is_held_back_during_the_work_and_runs_afterwards(
    work: Callable[[keras.Model, Any], None], inside: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    seen = []
    module, _, name = inside.rpartition(".")
    original = getattr(__import__(module, fromlist=[name]), name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(gc.isenabled())
        return original(*args, **kwargs)

    monkeypatch.setattr(inside, watched)
    assert gc.isenabled()
    work(small_model(), tmp_path)
    assert seen == [False]
    assert gc.isenabled()


def test_collector_runs_again_after_an_error(tmp_path: Any) -> None:
    q_model = qdq.quantize_model(small_model())
    with pytest.raises(UncalibratedError):
        qdq.export_onnx(q_model, tmp_path / "model.onnx")
    assert gc.isenabled()
    with pytest.raises(SpecError):
        qdq.quantize_model(small_model(), plan=qdq.plan_placement(small_model()), quantization_mode="partial")
    assert gc.isenabled()


def test_collector_that_the_user_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nested_pauses_end_with_the_outer_one() -> None:
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_of_two_threads_that_overlap_the_last_to_leave_lets_it_run() -> None:
    first_in, second_in = threading.Event(), threading.Event()
    first_out = threading.Event()
    seen = []

    def first() -> None:
        with collector_paused():
            first_in.set()
            second_in.wait(60)
        first_out.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert first_in.wait(60)
    with collector_paused():
        second_in.set()
        assert first_out.wait(60)
        seen.append(gc.isenabled())
    thread.join(60)
    assert seen == [False]
    assert gc.isenabled()
