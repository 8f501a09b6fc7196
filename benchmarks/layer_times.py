"""Are the times of `profile_onnx` true? Every layer's gain against switching that layer.

    python benchmarks/layer_times.py [resnet8 mobilenet_v2 resnet50] [--rounds 20] [--threads 1] [--switch resnet8]

What a layer gains by INT8 according to the profile is compared with the difference of two whole runs, of the file with
the layer in float and of the file with all layers in INT8, in the same rounds: the rank correlation is printed. A layer
in float among integer ones also costs its conversions, which the profile of the other file cannot know: where these
weigh as much as the layers, as in small networks, the two are different questions. So the rank correlation of the
estimates of `explain(latency=)` is printed too, which count the conversions at a layer's borders.
"""

import os
import pathlib
import tempfile
from typing import Any

import keras
import numpy as np
from networks import NETWORKS, arguments_for, chosen
from onnx_speed import least_turns, runner
from rounds import record
from scipy.stats import spearmanr

import qdq_workbench as qdq


def quantized(model: keras.Model, folder: pathlib.Path, name: str, data: np.ndarray, **spec: Any) -> pathlib.Path:
    """Write the file of a plan for ONNX Runtime."""
    cases = [qdq.AutoQDQCase()]
    q_model = qdq.quantize_model(model, custom_qdq_cases=cases, target="onnxruntime", **spec)
    qdq.calibrate(q_model, data, verbose=False)
    return qdq.export_onnx(q_model, folder / f"{name}.onnx").path


def sums(name: str, report: qdq.LatencyReport) -> None:
    """Print how much of a run its kernels account for."""
    outside = report.others[-1]
    print(
        f"{name}: {report.total_ms:.3f} ms, kernels {1 - outside.share:.1%} of it, noise {report.noise:.1%}, load "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )


def in_float(layer: str) -> qdq.QuantizationSpec:
    """Return a spec that leaves one layer in float."""
    spec = qdq.QuantizationSpec()
    spec.add(layer, quantize_input=False, quantize_weight=False, quantize_output=False)
    return spec


def switched(
    name: str,
    model: keras.Model,
    folder: pathlib.Path,
    data: np.ndarray,
    report: qdq.LatencyReport,
    rounds: int,
    threads: int,
) -> None:
    """Compare the gains of the profile with those of switching each layer with a kernel to float."""
    plan = qdq.plan_placement(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    layers = list(dict.fromkeys(p.layer for p in plan.placements if p.site == "weight"))
    estimates = qdq.explain(plan, latency=report).alone
    told: dict[str, list[float]] = {"profile": [], "estimate": []}
    measured = []
    for layer in layers:
        estimate = next((one.gain_ms for one in estimates if layer in one.layers), None)
        if estimate is None:
            continue
        told["estimate"].append(estimate)
        told["profile"].append(next(gain.gain_ms for gain in report.gains if layer in gain.layers))
        path = quantized(model, folder, "switched", data, quantization_spec=in_float(layer))
        files = {"float": path, "int8": folder / "int8.onnx"}
        calls = {key: runner(file, data[:1], threads) for key, file in files.items()}
        seconds = least_turns(calls, rounds)
        measured.append(1e3 * (seconds["float"] - seconds["int8"]))
        shown = ", ".join(f"{what} {1e3 * values[-1]:+9.1f} us" for what, values in told.items())
        print(f"  {layer:30} {shown}, switched {1e3 * measured[-1]:+9.1f} us", flush=True)
    for what, values in told.items():
        correlation = float(spearmanr(values, measured).statistic)
        print(f"{name}, {what}: Spearman {correlation:.2f} over {len(measured)} layers")
        record({f"{name}, {what}: 1 - rank correlation of layers' gains": 1 - correlation})


def main() -> None:
    """Measure the networks named on the command line."""
    parser = arguments_for(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--switch", nargs="*", default=["resnet8"], help="networks whose layers are switched one by one"
    )
    options = parser.parse_args()
    for name in chosen(options):
        with tempfile.TemporaryDirectory() as place:
            folder, model = pathlib.Path(place), NETWORKS[name]()
            data = np.random.default_rng(0).uniform(0, 1, (4, *model.input_shape[1:])).astype("float32")
            floats = qdq.export_float_onnx(model, folder / "float.onnx", target="onnxruntime")
            path = quantized(model, folder, "int8", data)
            report = qdq.profile_onnx(path, threads=options.threads, rounds=options.rounds, baseline=floats)
            sums(f"{name}, INT8", report)
            sums(f"{name}, float", report.baseline)
            if name in options.switch:
                switched(name, model, folder, data, report, options.rounds, options.threads)


if __name__ == "__main__":
    main()
