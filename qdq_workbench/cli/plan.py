"""`qdq-workbench plan`: where Q/DQ pairs go in a model, and why."""

from __future__ import annotations

import argparse
import importlib
import json

from qdq_workbench.cli.inputs import add_planning_arguments, load_model, planning_arguments
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, PAGE, PICTURE, check_output


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a Keras 3 model, .keras or .h5")
    add_planning_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON")
    parser.add_argument("--html", metavar="FILE", help="write the graph as a page to look at, which needs no network")
    parser.add_argument("--picture", metavar="FILE", help="write the graph as a static picture, .svg")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq
    from qdq_workbench._files import write_text

    check_output(options.output, JSON)
    check_output(options.html, PAGE)
    check_output(options.picture, PICTURE)
    plan = qdq.plan_placement(load_model(options.model), **planning_arguments(options))
    text = plan.summary()
    if options.output:
        write_text(options.output, json.dumps(plan.to_dict(), indent=2))
        text += f"\n\nWrote {options.output}"
    if options.html:
        # By name: the page is drawn by the widgets' own script, and the library must import without them.
        importlib.import_module("qdq_widgets.graph_page").write_graph_page(plan, options.html)
        text += f"\n\nWrote {options.html}"
    if options.picture:
        importlib.import_module("qdq_widgets.picture").write_graph_picture(plan, options.picture)
        text += f"\n\nWrote {options.picture}"
    return Outcome(text, plan.to_dict())


PLAN = Command("plan", "Show where Q/DQ pairs go in a model, and why.", _configure, _run)
