"""`qdq-workbench verify`: check an exported file against its plan and its Keras model."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
from typing import TYPE_CHECKING, Any

from qdq_workbench.cli.checking import add_checking_arguments, certify, checks_as_text, model_and_data, outcome_of
from qdq_workbench.cli.inputs import load_samples, read_arrays, require_file
from qdq_workbench.cli.outcome import Command, Outcome, working
from qdq_workbench.cli.outputs import JSON, check_output
from qdq_workbench.errors import DataError, UnverifiableFileError, VerificationError, first_line

if TYPE_CHECKING:
    from qdq_workbench import Certificate, VerificationReport


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
    if options.labels and (options.certificate or not options.data):
        raise DataError(
            "Labels give the accuracy of the file on the samples of --data; a certificate has none. Received: "
            f"--labels {options.labels!r}, --data {options.data}, --certificate {options.certificate}"
        )
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
    require_file(options.file)
    arrays = read_arrays(options.data) if options.data else None
    model, data, remarks = model_and_data(options, arrays)
    if not options.certificate:
        labelled = load_samples(options.data, options.labels, arrays=arrays) if options.data else None
        with working(f"Verifying {options.file}"):
            verify = qdq.files.verify_tflite if litert else qdq.verify_onnx
            report = verify(options.file, model, data=data)
        return _with_score(report, labelled, model, options, remarks)
    certificate = certify(options, model, data)
    if known is None:
        return outcome_of(certificate, options.certificate, remarks)
    return dataclasses.replace(_compared(known, certificate, options), remarks=remarks)


def _with_score(
    report: VerificationReport,
    labelled: tuple[Any, Any] | None,
    model: Any,
    options: argparse.Namespace,
    remarks: tuple[str, ...],
) -> Outcome:
    """Return the outcome for a report, with the accuracy of the file where there are labels."""
    import qdq_workbench as qdq

    outcome = Outcome(report.summary(), report.to_dict(), passed=report.passed, remarks=remarks)
    if labelled is None or labelled[1] is None:
        return outcome
    try:
        with working(f"Scoring {options.file}"):
            score = qdq.files.score_file(options.file, labelled, model=model)
    except (DataError, VerificationError) as error:
        # The report says why a file does not run; labels that happen to be in the data need not be classes.
        if options.labels and isinstance(error, DataError):
            raise
        remark = f"the labels in the data give no accuracy: {first_line(error)}"
        print(f"note: {remark}", file=sys.stderr)
        return dataclasses.replace(outcome, remarks=(*remarks, remark))
    data = {**outcome.data, "score": score.to_dict()}
    return dataclasses.replace(outcome, text=f"{outcome.text}\n{score.summary()}", data=data)


def _compared(known: Certificate, certificate: Certificate, options: argparse.Namespace) -> Outcome:
    """Compare the new certificate with the existing one."""
    differences = known.differences(certificate)
    verdict = ["differs from the certificate:", *differences] if differences else ["equals the certificate"]
    text = "\n".join([f"{options.file} {verdict[0]}", *verdict[1:], *checks_as_text(certificate)])
    result = {**certificate.to_dict(), "differences": differences}
    return Outcome(text, result, passed=certificate.passed and not differences)


VERIFY = Command("verify", "Check an exported file against its plan and its Keras model.", _configure, _run)
