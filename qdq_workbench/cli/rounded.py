"""Shared input and output of the commands that round the weights of a quantized model again."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from qdq_workbench.cli.inputs import load_arrays, load_model
from qdq_workbench.cli.outcome import Outcome
from qdq_workbench.cli.outputs import JSON, MODEL, check_output
from qdq_workbench.cli.remarks import scale_remarks


def add_rounding_files(parser: argparse.ArgumentParser, model: str) -> None:
    """Add the arguments for the model, with this help text, the data and the output."""
    parser.add_argument("model", metavar="Q_MODEL", help=model)
    parser.add_argument(
        "--data", metavar="FILE", required=True, help="model inputs, .npy or .npz; labels are not needed"
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the model with new weights, .keras")


def round_weights(options: argparse.Namespace, work: Callable[[Any, Any], Any]) -> Outcome:
    """Round the weights of a model and write it, and the report if --report is given.

    `work` takes the model and the data, rounds the weights in place and returns the report.
    """
    from qdq_workbench._files import write_atomically
    from qdq_workbench.conversion.engine.saving import check_hdf5

    check_output(options.output, MODEL)
    check_output(options.report, JSON)
    q_model, data = load_model(options.model), load_arrays(options.data, "train")
    # Before the work, because Keras cannot load some quantized models from HDF5 files.
    check_hdf5(q_model, options.output)
    remarks = scale_remarks(q_model, data, options.data)
    report = work(q_model, data)
    write_atomically(options.output, q_model.save)
    if options.report:
        report.save(options.report)
    written = [path for path in (options.output, options.report) if path]
    text = "\n".join([report.summary(), *(f"Wrote {path}" for path in written)])
    return Outcome(text, {**report.to_dict(), "path": options.output, "written": written}, remarks=remarks)
