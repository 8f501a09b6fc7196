"""`qdq-workbench verify`: does an exported file do what its plan and its Keras model say?"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Any

from qdq_workbench.cli.certify import checks_as_text
from qdq_workbench.cli.inputs import load_arrays, load_model
from qdq_workbench.cli.outcome import Command, Outcome, working
from qdq_workbench.cli.outputs import JSON, check_output
from qdq_workbench.cli.remarks import scale_remarks


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an ONNX file that `qdq-workbench export` wrote")
    parser.add_argument("--model", metavar="Q_MODEL", help="the quantized Keras model that the file was made from")
    parser.add_argument("--data", metavar="FILE", help="model inputs to compare on, .npy or .npz")
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="compute this certificate (.json) again and compare; without one yet, write it and a page beside it",
    )


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    check_output(options.certificate, JSON)
    model = load_model(options.model) if options.model else None
    data = load_arrays(options.data) if options.data else None
    remarks = () if model is None or data is None else scale_remarks(model, data, options.data)
    if options.certificate:
        return dataclasses.replace(_certify(options, model, data), remarks=remarks)
    with working(f"Verifying {options.file}"):
        report = qdq.verify_onnx(options.file, model, data=data)
    return Outcome(report.summary(), report.to_dict(), passed=report.passed, remarks=remarks)


def _certify(options: argparse.Namespace, model: Any, data: Any) -> Outcome:
    """Compute the certificate; compare it with the one at hand, or write it with its page."""
    import qdq_workbench as qdq

    path = pathlib.Path(options.certificate)
    with working(f"Certifying {options.file}"):
        certificate = qdq.certify(options.file, model, data)
    checks = "\n".join(checks_as_text(certificate))
    if path.exists():
        differences = qdq.Certificate.load(path).differences(certificate)
        verdict = (
            "\n".join(["differs from the certificate:", *differences]) if differences else "equals the certificate"
        )
        result = {**certificate.to_dict(), "differences": differences}
        return Outcome(f"{options.file} {verdict}\n{checks}", result, passed=certificate.passed and not differences)
    certificate.save(path)
    page = qdq.write_certificate_page(certificate, path.with_suffix(".html"))
    return Outcome(f"Wrote {path} and {page}\n{checks}", certificate.to_dict(), passed=certificate.passed)


VERIFY = Command("verify", "Check an exported file against its plan and its Keras model.", _configure, _run)
