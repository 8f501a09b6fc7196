"""`qdq-workbench plan`: the placement of Q/DQ pairs in a model, with reasons."""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
from typing import Any

from qdq_workbench.cli.inputs import add_planning_arguments, load_model, load_plan, planning_arguments, target_remark
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, PAGE, PICTURE, check_apart, check_keeps, check_output
from qdq_workbench.cli.widths import remarks_on_weights
from qdq_workbench.errors import SpecError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a Keras 3 model, .keras or .h5")
    add_planning_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON")
    parser.add_argument("--html", metavar="FILE", help="write the graph as a page to look at, which needs no network")
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument(
        "--beside",
        metavar="FILE",
        help="with --html: draw another plan (.json), or what an exported file holds (.onnx), beside it",
    )
    beside.add_argument(
        "--kernels", metavar="FILE", help="with --html: draw ONNX Runtime's kernels of an exported file beside it"
    )
    parser.add_argument("--picture", metavar="FILE", help="write the graph as a static picture, .svg")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench._files import write_text

    check_output(options.output, JSON)
    check_output(options.html, PAGE)
    check_output(options.picture, PICTURE)
    check_apart(options.output, options.html, options.picture)
    check_keeps((options.output, options.html, options.picture), (options.spec, options.beside, options.kernels))
    beside = _beside(options)
    model = load_model(options.model)
    chosen = target_remark(options)
    plan = qdq.plan_placement(model, **planning_arguments(options, model))
    remarks = remarks_on_weights(plan, options)
    text = plan.summary()
    if chosen:
        text += f"\n\nPlanned for {plan.target_label}{chosen}"
    if options.output:
        write_text(options.output, json.dumps(plan.to_dict(), indent=2))
        text += f"\n\nWrote {options.output}"
    if options.html:
        # Imported by name, because the library must work without the optional package qdq_widgets.
        importlib.import_module("qdq_widgets.graph_page").write_graph_page(plan, options.html, beside=beside)
        text += f"\n\nWrote {options.html}"
    if options.picture:
        importlib.import_module("qdq_widgets.picture").write_graph_picture(plan, options.picture)
        text += f"\n\nWrote {options.picture}"
    return Outcome(text, plan.to_dict(), remarks=remarks)


def _beside(options: argparse.Namespace) -> Any:
    """Return the second graph of the page: a plan, an exported file's layers or its kernels; None for none."""
    import qdq_workbench as qdq

    path = options.beside or options.kernels
    if path is None:
        return None
    if options.html is None:
        raise SpecError(f"A page shows two graphs; give its name too: --html graph.html. Received: {path!r}")
    if options.kernels:
        return qdq.profiling.read_kernels(path)
    return load_plan(path) if pathlib.Path(path).suffix.lower() == ".json" else qdq.files.read_layers(path)


PLAN = Command("plan", "Show where Q/DQ pairs go in a model, and why.", _configure, _run)
