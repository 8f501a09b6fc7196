"""A file in ONNX Runtime, with the profiler: what a profile holds."""

import numpy as np
from pass_graphs import model_of

from qdq_workbench.profiling.onnxruntime_runner import OnnxRuntimeRunner


def test_a_profile_has_a_time_of_every_kernel_for_every_run_that_is_not_forgotten(tmp_path):
    model = model_of(
        [("Sigmoid", "x", "a"), ("MatMul", "a,w", "y")], {"x": (64, 64)}, "y", {"w": np.eye(64, dtype="f4")}
    )
    runner = OnnxRuntimeRunner(model.SerializeToString(), {"x": np.ones((64, 64), np.float32)}, 1, tmp_path)
    for _ in range(5):
        runner.run_profiled()
    runner.forget(2)
    runner.run()  # without the profiler

    profile = runner.profile()

    assert {name: len(times) for name, times in profile.items()} == {"a": 3, "y": 3}
    assert max(profile["y"]) > 0
