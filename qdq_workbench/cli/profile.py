"""`qdq-workbench profile`: the run time of a file in ONNX Runtime, OpenVINO or LiteRT, layer by layer."""

from __future__ import annotations

import argparse

from qdq_workbench.cli.inputs import load_arrays, positive, require_file
from qdq_workbench.cli.outcome import Command, Outcome, working
from qdq_workbench.cli.outputs import JSON, PAGE, check_output, write_figure


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="an ONNX file, or a .tflite file with --runtime litert; of `qdq-workbench export` for times by layer",
    )
    parser.add_argument("--baseline", metavar="FILE", help="compare with this file, such as the model's float file")
    parser.add_argument("--data", metavar="FILE", help="model inputs, .npy or .npz; default: random ones")
    parser.add_argument("--threads", type=positive, help="threads within a kernel; default: the runtime's own choice")
    parser.add_argument(
        "--runtime", choices=("onnxruntime", "openvino", "litert"), default="onnxruntime", help="default: onnxruntime"
    )
    parser.add_argument("--rounds", type=positive, default=12, help="turns of every file; default: 12")
    parser.add_argument("--batch-size", type=positive, default=1, help="samples per run; default: 1")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report, .json")
    parser.add_argument("--figure", metavar="FILE", help="write the times as a page, .html")


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    for path, suffixes in ((options.output, JSON), (options.figure, PAGE)):
        check_output(path, suffixes)
    require_file(options.file)
    if options.baseline is not None:
        require_file(options.baseline)
    data = load_arrays(options.data) if options.data else None
    with working(f"Measuring {options.file}"):
        report = qdq.profile_onnx(
            options.file,
            data,
            threads=options.threads,
            rounds=options.rounds,
            batch=options.batch_size,
            baseline=options.baseline,
            runtime=options.runtime,
        )
    if options.output:
        report.save(options.output)
    if options.figure:
        write_figure(options.figure, report.plot())
    written = [path for path in (options.output, options.figure) if path]
    text = "\n".join([report.summary(), *(f"Wrote {path}" for path in written)])
    return Outcome(text, {**report.to_dict(), "written": written})


PROFILE = Command(
    "profile",
    "Measure the time of every layer in ONNX Runtime, OpenVINO or LiteRT.",
    _configure,
    _run,
    reads_models=False,
)
