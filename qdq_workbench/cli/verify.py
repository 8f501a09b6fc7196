"""`qdq-workbench verify`: check an exported file against its plan and its Keras model."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import TYPE_CHECKING

from qdq_workbench.cli.checking import add_checking_arguments, certify, checks_as_text, model_and_data, outcome_of
from qdq_workbench.cli.outcome import Command, Outcome, working
from qdq_workbench.cli.outputs import JSON, check_output
from qdq_workbench.errors import UnverifiableFileError

if TYPE_CHECKING:
    from qdq_workbench import Certificate


def _configure(parser: argparse.ArgumentParser) -> None:
    add_checking_arguments(parser)
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="compute this certificate (.json) again and compare; without one yet, write it and a page beside it",
    )


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    check_output(options.certificate, JSON)
    litert = pathlib.Path(options.file).suffix.lower() == ".tflite"
    if litert and (options.certificate or not options.model):
        raise UnverifiableFileError(
            "A LiteRT file carries no plan, so it is verified against its model, and no certificate is about one: "
            "qdq-workbench verify FILE.tflite --model Q_MODEL. "
            f"Received: {options.file!r}, --model {options.model}, --certificate {options.certificate}"
        )
    # Before the certification, which takes a while: the file may be damaged.
    exists = options.certificate and pathlib.Path(options.certificate).exists()
    known = qdq.Certificate.load(options.certificate) if exists else None
    model, data, remarks = model_and_data(options)
    if litert:
        with working(f"Verifying {options.file}"):
            report = qdq.files.verify_tflite(options.file, model, data=data)
        return Outcome(report.summary(), report.to_dict(), passed=report.passed, remarks=remarks)
    if not options.certificate:
        with working(f"Verifying {options.file}"):
            report = qdq.verify_onnx(options.file, model, data=data)
        return Outcome(report.summary(), report.to_dict(), passed=report.passed, remarks=remarks)
    certificate = certify(options, model, data)
    if known is None:
        return outcome_of(certificate, options.certificate, remarks)
    return dataclasses.replace(_compared(known, certificate, options), remarks=remarks)


def _compared(known: Certificate, certificate: Certificate, options: argparse.Namespace) -> Outcome:
    """Compare the new certificate with the existing one."""
    differences = known.differences(certificate)
    verdict = ["differs from the certificate:", *differences] if differences else ["equals the certificate"]
    text = "\n".join([f"{options.file} {verdict[0]}", *verdict[1:], *checks_as_text(certificate)])
    result = {**certificate.to_dict(), "differences": differences}
    return Outcome(text, result, passed=certificate.passed and not differences)


VERIFY = Command("verify", "Check an exported file against its plan and its Keras model.", _configure, _run)
