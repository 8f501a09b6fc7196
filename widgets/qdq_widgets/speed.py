"""The times of a plan's file in ONNX Runtime, with the float file as baseline, layer by layer."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.events import Events
from qdq_widgets.plans import Plans
from qdq_widgets.work import Workshop

PLAN_FILE, _FLOAT = "plan.onnx", "float.onnx"


class Speed:
    """Measured times; a part of `Workbench`."""

    def __init__(self, plans: Plans, work: Workshop, events: Events) -> None:
        self._plans, self._work, self._events = plans, work, events

    def measure_speed(self, *, threads: int | None = None, rounds: int = 12, batch: int = 1) -> qdq.LatencyReport:
        """Measure the time of the present plan's file in ONNX Runtime on this computer, compared with the float file.

        Both files run in turns; see `qdq_workbench.profile_onnx`. The file is written for the plan's target but runs
        on the processor in ONNX Runtime: the times of another runtime differ.

        Args:
            threads: Threads within a kernel; None for ONNX Runtime's own choice.
            rounds: The number of turns of each file.
            batch: Samples per run.

        Returns:
            The `LatencyReport`; the times of its layers are also in `metrics`.

        Raises:
            BenchError: If the plan is not calibrated.
        """
        plan = self._plans.plan
        with self._work.jobs.run("measuring the speed") as job:
            with job.stops():
                q_model = self._work.models.get(plan)
            settings = {"threads": threads, "rounds": rounds, "batch": batch}
            with qdq.files.scratch_folder() as folder:
                job.report(None, "writing the files")
                with job.stops():
                    path = qdq.export_onnx(q_model, folder / PLAN_FILE, target=plan.target).path
                report = profile(self._work, path, plan.target, job, settings)
            self._work.models.remember_latency(plan, report)
        self._events.tell("speed", "metrics")
        return report


def profile(
    work: Workshop,
    path: pathlib.Path,
    target: str,
    job: Job,
    settings: dict[str, Any],
    part: tuple[float, float] = (0.0, 1.0),
) -> qdq.LatencyReport:
    """Return the times of a plan's file, with the float file for its target as baseline, written to the same folder.

    The rounds are a part of the job's progress.
    After a stop of the job, the rounds so far count; before the first one it raises `BenchStoppedError`.
    """
    with job.stops():
        baseline = qdq.export_float_onnx(work.models.float_model, path.with_name(_FLOAT), target=target)
    job.raise_if_stopped()
    report = qdq.profile_onnx(
        path,
        work.data.for_verification(),
        baseline=baseline,
        progress=lambda done, total, text: job.report(
            part[0] + (part[1] - part[0]) * done / total, f"{text}: {done} of {total}"
        ),
        stop=lambda: job.stop_requested,
        **settings,
    )
    # The names alone: the folder is removed after the measurement.
    floats = report.baseline and dataclasses.replace(report.baseline, path=pathlib.Path(_FLOAT))
    return dataclasses.replace(report, path=pathlib.Path(path.name), baseline=floats)
