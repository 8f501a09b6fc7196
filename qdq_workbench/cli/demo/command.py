"""The `demo` command: its arguments and its outcome."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import positive
from qdq_workbench.cli.outcome import Command, Outcome

DEFAULT_CASE = "ResNetV1QDQCase"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="images of classes, .npz with x_train, y_train, x_test, y_test; default: scikit-learn's digits",
    )
    parser.add_argument(
        "--model",
        metavar="FILE",
        help="a trained classifier of one image input, .keras or .h5; default: train one",
    )
    parser.add_argument(
        "--case", action="append", metavar="CASE", help=f"a library case by class name; default: {DEFAULT_CASE}"
    )
    parser.add_argument("--epochs", type=positive, default=12, help="epochs of float training; default: 12")
    parser.add_argument("--fine-tune-epochs", type=positive, default=3, help="epochs of QAT; default: 3")
    parser.add_argument("--output", metavar="FOLDER", default="build/demo", help="default: build/demo")


def _run(options: argparse.Namespace) -> Outcome:
    from qdq_workbench.cli.demo.job import run_demo

    figures, files = run_demo(
        output=options.output,
        data_path=options.data,
        model_path=options.model,
        # Not as the option's default, to which the action append would add the user's cases.
        case_names=options.case or [DEFAULT_CASE],
        epochs=options.epochs,
        fine_tune_epochs=options.fine_tune_epochs,
    )
    listing = "\n".join(f"  {file}" for file in files)
    return Outcome(
        f"{listing}\n{figures.verdict()}",
        {**figures.to_dict(), "files": [str(file) for file in files]},
        passed=figures.passed,
    )


DEMO = Command("demo", "Train, quantize, calibrate, fine-tune, export and verify, with a report.", _configure, _run)
