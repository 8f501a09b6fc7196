"""`qdq-workbench certify`: the results of all checks of an exported file, in a form that can be recomputed."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.checking import add_checking_arguments, certify, model_and_data, outcome_of
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import JSON, check_output


def _configure(parser: argparse.ArgumentParser) -> None:
    add_checking_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the certificate, .json, and a page of the same name, .html, beside it",
    )


def _run(options: argparse.Namespace) -> Outcome:
    check_output(options.output, JSON)
    model, data, remarks = model_and_data(options)
    return outcome_of(certify(options, model, data), options.output, remarks)


CERTIFY = Command("certify", "Verify an exported file and write down everything that was found.", _configure, _run)
