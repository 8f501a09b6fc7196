"""Print the passes of an export with their contracts, or what each pass changes on a model.

python -m qdq_workbench.export.show_passes
python -m qdq_workbench.export.show_passes model.keras --target onnxruntime
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator

from qdq_workbench.calibration.calibrate import calibrate
from qdq_workbench.conversion.engine.quantize_model import quantize_model
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.random_inputs import random_inputs
from qdq_workbench.conversion.files.load_model import load_model
from qdq_workbench.export.onnx_export import build_proto
from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.export.passes.order import STAGES, Stage, passes_observed
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.onnx_graph.snapshot import difference, snapshot


def described() -> str:
    """Return the passes in order, each with its contract."""
    lines = []
    for stage in STAGES:
        lines.append(f"{stage.name}: the graph is {stage.state}")
        for graph_pass in stage.passes:
            lines += [
                f"  {graph_pass.name}",
                f"    does     {graph_pass.summary}",
                f"    needs    {graph_pass.needs}",
                f"    holds    {graph_pass.holds}",
                f"    refuses  {graph_pass.refuses}",
            ]
    return "\n".join(lines) + "\n"


def changes_on(path: str | os.PathLike[str], target: str) -> str:
    """Return what each pass changes while the model of a Keras file is exported.

    A float model is quantized for the target by default rules and calibrated on random inputs.
    """
    model = load_model(path)
    if not isinstance(model, QuantizedModel):
        model = quantize_model(model, target=target)
        calibrate(model, random_inputs(model, 2), verbose=False)
    lines: list[str] = []

    @contextlib.contextmanager
    def noted(stage: Stage, graph_pass: GraphPass, graph: Graph) -> Iterator[None]:
        before = snapshot(graph)
        yield
        lines.append(f"{stage.name}: {graph_pass.name}: {difference(before, snapshot(graph))}")

    with passes_observed(noted):
        build_proto(model, model.plan.target_object, opset=None, dynamic_batch=True)
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; return 0.

    Args:
        arguments: The command line without the program's name; None for `sys.argv`.
    """
    parser = argparse.ArgumentParser(
        prog="python -m qdq_workbench.export.show_passes",
        description="Print the passes of an export with their contracts, or what each pass changes on a model.",
    )
    parser.add_argument("model", nargs="?", help="a .keras or .h5 file, quantized or float")
    parser.add_argument("--target", default="onnxruntime", help="the target of a float model (default: onnxruntime)")
    given = parser.parse_args(arguments)
    sys.stdout.write(described() if given.model is None else changes_on(given.model, given.target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
