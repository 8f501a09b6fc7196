"""`qdq-workbench export`: export a calibrated quantized model to QDQ ONNX, int8 LiteRT, or for firmware.

`--float` writes the FP32 file as the baseline for size and speed.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from qdq_workbench.cli.inputs import TARGETS, load_model, target_name
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import C_HEADER, EXPORTED, PYTHON, check_keeps, check_output
from qdq_workbench.errors import TargetError
from qdq_workbench.graph.half_precision import FLOAT32, FLOAT_TYPES


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="Q_MODEL", help="a calibrated quantized model, .keras; with --float any model")
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the file: .onnx, .tflite for LiteRT, .npz for firmware"
    )
    parser.add_argument(
        "--target", type=target_name, choices=TARGETS, help="default: the target that the model was quantized for"
    )
    parser.add_argument("--opset", type=int, help="ONNX operator set; default: the target's")
    parser.add_argument(
        "--float-type",
        choices=FLOAT_TYPES,
        default=FLOAT32,
        help="type of what is not integer (default: float32); TensorRT 11 computes in the types of the file",
    )
    parser.add_argument(
        "--half-io", action="store_true", help="with --float-type: inputs and outputs have that type, too"
    )
    parser.add_argument("--fixed-batch", action="store_true", help="give the file a batch size of 1")
    parser.add_argument(
        "--dynamic-range",
        action="store_true",
        help="in a .tflite file, let weights with float inputs be read by hybrid kernels, which round those inputs",
    )
    parser.add_argument("--c-header", metavar="FILE", help="beside an .npz file, the same as a C header, .h")
    parser.add_argument(
        "--interpreter", metavar="FILE", help="beside an .npz file, a reference interpreter of it in NumPy, .py"
    )
    parser.add_argument(
        "--float", action="store_true", help="write the model without its pairs, in FP32, to compare with"
    )


def _run(options: argparse.Namespace) -> Outcome:
    import qdq_workbench as qdq

    check_output(options.output, EXPORTED)
    check_output(options.c_header, C_HEADER)
    check_output(options.interpreter, PYTHON)
    check_keeps((options.interpreter,), options.imports)
    suffix = pathlib.Path(options.output).suffix.lower()
    if suffix != ".npz" and (options.c_header or options.interpreter):
        raise TargetError(
            "--c-header and --interpreter go with a file for firmware: -o FILE.npz. "
            f"Received: -o {options.output!r}, --c-header {options.c_header}, --interpreter {options.interpreter}"
        )
    if options.half_io and options.float_type == FLOAT32:
        raise TargetError(
            "Inputs and outputs have another type in files of half precision: --float-type float16 --half-io. "
            f"Received: --half-io, --float-type {options.float_type}"
        )
    if options.dynamic_range and suffix != ".tflite":
        raise TargetError(
            "--dynamic-range is about LiteRT's hybrid kernels: -o FILE.tflite. "
            f"Received: -o {options.output!r}, --dynamic-range"
        )
    _check_opset(options.opset)
    if options.float:
        return _write_float(options)
    if suffix == ".tflite":
        _check_litert(options)
    if suffix == ".npz":
        _check_firmware(options)
    model = load_model(options.model)
    if suffix == ".npz":
        return _write_firmware(options, model)
    if suffix == ".tflite":
        batch = 1 if options.fixed_batch else None
        written = qdq.export_tflite(model, options.output, batch=batch, dynamic_range=options.dynamic_range)
        return Outcome(written.summary(), written.to_dict())
    report = qdq.export_onnx(
        model,
        options.output,
        target=options.target,
        opset=options.opset,
        dynamic_batch=not options.fixed_batch,
        float_type=options.float_type,
        keep_io_types=not options.half_io,
    )
    return Outcome(report.summary(), report.to_dict())


def _write_firmware(options: argparse.Namespace, model: Any) -> Outcome:
    """Write the integers, the topology and the multipliers of a model for firmware."""
    import qdq_workbench as qdq

    report = qdq.files.save_firmware(
        model,
        options.output,
        target=options.target,
        c_header=options.c_header,
        interpreter=options.interpreter,
    )
    return Outcome(report.summary(), report.to_dict())


def _write_float(options: argparse.Namespace) -> Outcome:
    """Write the FP32 file of a model; for a quantized model that of its float model."""
    import qdq_workbench as qdq

    other = pathlib.Path(options.output).suffix.lower() != ".onnx"
    if options.float_type != FLOAT32 or other:
        raise TargetError(
            "--float writes one FP32 .onnx file, without --float-type. "
            f"Received: -o {options.output!r}, float_type={options.float_type!r}"
        )
    model = load_model(options.model)
    if isinstance(model, qdq.results.QuantizedModel):
        model = qdq.strip(model)
    path = qdq.files.export_float_onnx(
        model, options.output, target=options.target, opset=options.opset, dynamic_batch=not options.fixed_batch
    )
    return Outcome(f"Wrote {path}, in FP32", {"path": str(path)})


def _check_opset(opset: int | None) -> None:
    """Raise TargetError for an opset that is not supported."""
    from qdq_workbench.export.build_onnx import MAX_OPSET
    from qdq_workbench.export.keras_side.float_graph import MIN_OPSET

    if opset is not None and not MIN_OPSET <= opset <= MAX_OPSET:
        raise TargetError(f"Supported opsets are {MIN_OPSET} to {MAX_OPSET}. Received: --opset {opset}")


def _check_firmware(options: argparse.Namespace) -> None:
    """Raise TargetError for options that do not apply to a file for firmware."""
    if options.opset is not None or options.float_type != FLOAT32 or options.fixed_batch:
        raise TargetError(
            "A file for firmware has no opset, no half precision and no batch. Give an .onnx file for them. Received: "
            f"--opset {options.opset}, --float-type {options.float_type}, --fixed-batch {options.fixed_batch}"
        )


def _check_litert(options: argparse.Namespace) -> None:
    """Raise TargetError for options that do not apply to a LiteRT file."""
    if options.opset is not None or options.target not in (None, "litert"):
        raise TargetError(
            "A .tflite file is for LiteRT and has no opset; give an .onnx file for other targets. "
            f"Received: target={options.target!r}, opset={options.opset!r}"
        )
    if options.float_type != FLOAT32:
        raise TargetError(
            "A .tflite file holds its floats in float32; give an .onnx file for half precision. "
            f"Received: --float-type {options.float_type}"
        )


_SUMMARY = "Export a quantized model to a clean QDQ ONNX file, to LiteRT, or for firmware."
EXPORT = Command("export", _SUMMARY, _configure, _run)
