"""Shared functions of `verify` and `certify`: reading file, model and data, and computing the certificate."""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING, Any

from qdq_workbench.cli.inputs import load_arrays, load_model, require_file
from qdq_workbench.cli.outcome import Outcome, working
from qdq_workbench.cli.remarks import scale_remarks

if TYPE_CHECKING:
    from qdq_workbench import Certificate


def add_checking_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments FILE, --model and --data: the exported file, and what it is compared with."""
    parser.add_argument("file", metavar="FILE", help="a file that `qdq-workbench export` wrote")
    parser.add_argument("--model", metavar="Q_MODEL", help="the quantized Keras model that the file was made from")
    parser.add_argument("--data", metavar="FILE", help="model inputs to compare on, .npy or .npz")


def model_and_data(options: argparse.Namespace, arrays: Any = None) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the model and the data, each None if not given, and remarks if their scales do not match.

    `arrays` is the result of `read_arrays` for the data; None to read them here.
    """
    require_file(options.file)
    model = load_model(options.model) if options.model else None
    data = load_arrays(options.data, arrays=arrays) if options.data else None
    remarks = () if model is None or data is None else tuple(scale_remarks(model, data, options.data))
    return model, data, remarks


def certify(options: argparse.Namespace, model: Any, data: Any) -> Certificate:
    """Compute the certificate of the file."""
    import qdq_workbench as qdq

    with working(f"Certifying {options.file}"):
        return qdq.certify(options.file, model, data)


def checks_as_text(certificate: Certificate) -> list[str]:
    """Return one line per check of a certificate, and a note if its file was exported for another runtime."""
    from qdq_workbench.runtimes.other_target import other_target_remark

    remark = other_target_remark(certificate.target or None)
    checks = (
        f"{'ok  ' if check['passed'] else 'FAIL'}  {check['name']}: {check['detail']}" for check in certificate.checks
    )
    return [*checks, *([f"note  {remark}"] if remark else [])]


def outcome_of(certificate: Certificate, path: str | None, remarks: tuple[str, ...]) -> Outcome:
    """Return the outcome for a new certificate; write it and its page if a path is given."""
    import qdq_workbench as qdq

    lines = checks_as_text(certificate)
    if path:
        written = certificate.save(path)
        page = qdq.write_certificate_page(certificate, pathlib.Path(path).with_suffix(".html"))
        lines = [f"Wrote {written} and {page}", *lines]
    return Outcome("\n".join(lines), certificate.to_dict(), passed=certificate.passed, remarks=remarks)
