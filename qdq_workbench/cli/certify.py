"""`qdq-workbench certify`: everything that was checked about an exported file, to be checked again by anyone."""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING

from qdq_workbench.cli.inputs import load_arrays, load_model
from qdq_workbench.cli.outcome import Command, Outcome, working
from qdq_workbench.cli.outputs import JSON, check_output
from qdq_workbench.cli.remarks import scale_remarks

if TYPE_CHECKING:
    from qdq_workbench import Certificate


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an ONNX file that `qdq-workbench export` wrote")
    parser.add_argument("--model", metavar="Q_MODEL", help="the quantized Keras model that the file was made from")
    parser.add_argument("--data", metavar="FILE", help="model inputs to compare on, .npy or .npz")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the certificate, .json, and a page of the same name, .html, beside it",
    )


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    check_output(options.output, JSON)
    model = load_model(options.model) if options.model else None
    data = load_arrays(options.data) if options.data else None
    remarks = () if model is None or data is None else scale_remarks(model, data, options.data)
    with working(f"Certifying {options.file}"):
        certificate = qdq.certify(options.file, model, data)
    lines = checks_as_text(certificate)
    if options.output:
        written = certificate.save(options.output)
        page = qdq.write_certificate_page(certificate, pathlib.Path(options.output).with_suffix(".html"))
        lines = [f"Wrote {written} and {page}", *lines]
    return Outcome("\n".join(lines), certificate.to_dict(), passed=certificate.passed, remarks=remarks)


def checks_as_text(certificate: Certificate) -> list[str]:
    """Return one line per check of a certificate.

    Args:
        certificate: The certificate.
    """
    return [
        f"{'ok  ' if check['passed'] else 'FAIL'}  {check['name']}: {check['detail']}" for check in certificate.checks
    ]


CERTIFY = Command("certify", "Verify an exported file and write down everything that was found.", _configure, _run)
