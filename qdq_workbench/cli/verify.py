"""`qdq-workbench verify`: check an exported file against its plan and its Keras model."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

from qdq_workbench.cli.checking import add_checking_arguments, certify, checks_as_text, model_and_data, outcome_of
from qdq_workbench.cli.inputs import load_samples
from qdq_workbench.cli.outcome import Command, Outcome, working
from qdq_workbench.cli.outputs import JSON, check_output
from qdq_workbench.errors import DataError, UnverifiableFileError, first_line

if TYPE_CHECKING:
    from qdq_workbench import Certificate, VerificationReport
    from qdq_workbench.analysis.file_score import FileScore


def _configure(parser: argparse.ArgumentParser) -> None:
    add_checking_arguments(parser)
    parser.add_argument(
        "--labels", metavar="FILE", help="labels, .npy, for data without; the accuracy of the file is shown beside"
    )
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
    score, more = _score(options, model)
    remarks = (*remarks, *more)
    if litert:
        with working(f"Verifying {options.file}"):
            report = qdq.files.verify_tflite(options.file, model, data=data)
        return _with_score(report, score, remarks)
    if not options.certificate:
        with working(f"Verifying {options.file}"):
            report = qdq.verify_onnx(options.file, model, data=data)
        return _with_score(report, score, remarks)
    certificate = certify(options, model, data)
    if known is None:
        return outcome_of(certificate, options.certificate, remarks)
    return dataclasses.replace(_compared(known, certificate, options), remarks=remarks)


def _score(options: argparse.Namespace, model: Any) -> tuple[FileScore | None, tuple[str, ...]]:
    """Return the accuracy of the file, where there are labels, and a remark where those of the data fit no classes."""
    import qdq_workbench as qdq

    if options.labels and not options.data:
        raise DataError(f"Labels need samples; give them with --data. Received: --labels {options.labels!r}")
    if not options.data:
        return None, ()
    samples, labels = load_samples(options.data, options.labels)
    if labels is None:
        return None, ()
    try:
        with working(f"Scoring {options.file}"):
            return qdq.files.score_file(options.file, (samples, labels), model=model), ()
    except (DataError, UnverifiableFileError) as error:
        if options.labels:
            raise
        return None, (f"the labels in the data give no accuracy: {first_line(error)}",)


def _with_score(report: VerificationReport, score: FileScore | None, remarks: tuple[str, ...]) -> Outcome:
    if score is None:
        return Outcome(report.summary(), report.to_dict(), passed=report.passed, remarks=remarks)
    text = f"{report.summary()}\n{score.summary()}"
    return Outcome(text, {**report.to_dict(), "score": score.to_dict()}, passed=report.passed, remarks=remarks)


def _compared(known: Certificate, certificate: Certificate, options: argparse.Namespace) -> Outcome:
    """Compare the new certificate with the existing one."""
    differences = known.differences(certificate)
    verdict = ["differs from the certificate:", *differences] if differences else ["equals the certificate"]
    text = "\n".join([f"{options.file} {verdict[0]}", *verdict[1:], *checks_as_text(certificate)])
    result = {**certificate.to_dict(), "differences": differences}
    return Outcome(text, result, passed=certificate.passed and not differences)


VERIFY = Command("verify", "Check an exported file against its plan and its Keras model.", _configure, _run)
