"""Do the times of layers add up to a run? With an overhead of the profiler that is measured on another file.

    python benchmarks/layer_sums.py [resnet8 mobilenet_v2 resnet50] [--rounds 20] [--threads 1] [--batch 8]

`profile_onnx` chooses the profiler's overhead per kernel so that kernels and overhead outside of them add up to a run
without the profiler, so that its own sum says nothing. Here the overhead is that of a chain of tiny kernels: the
difference between what the profiler reports of them and a run without it. The kernels of a network, less this overhead,
plus the time outside kernels, are compared with a run of the network without the profiler: the ratio is 1 if the times
of layers are true. It says most of networks with few large kernels, where the overhead is small.
"""

import os
import pathlib
import tempfile

import numpy as np
import onnx
from networks import NETWORKS, arguments_for, chosen
from onnx import TensorProto, helper

import qdq_workbench as qdq
from qdq_workbench.profiling.onnxruntime_runner import OnnxRuntimeRunner, outside_cost
from qdq_workbench.profiling.owners import with_names
from qdq_workbench.profiling.stopwatch import measure

CHAIN = 60


def chain(inputs: int) -> bytes:
    """Return a file of tiny kernels, one behind the other, each with some inputs."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    names = ["x", *(f"y{number}" for number in range(CHAIN))]
    nodes = [
        helper.make_node("Max", [names[i]] + ["x"] * (inputs - 1), [names[i + 1]], names[i + 1]) for i in range(CHAIN)
    ]
    end = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [1])
    graph = helper.make_graph(nodes, "chain", [value], [end])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def measured(model: bytes, feed: dict[str, np.ndarray], rounds: int, threads: int) -> tuple[float, float, int]:
    """Return the seconds of the fastest run without the profiler, of all kernels in the fastest with it, their number.

    The fastest, since other programs interrupt a run more often than any of its kernels.
    """
    with tempfile.TemporaryDirectory() as folder:
        runner = OnnxRuntimeRunner(model, feed, threads, pathlib.Path(folder))
        (times,), _ = measure([runner], rounds)
        kernels = [values for values in times.kernels.values() if values]
        del runner
    return min(times.seconds), 1e-6 * min(map(sum, zip(*kernels, strict=True))), len(kernels)


def overhead(rounds: int, threads: int) -> float:
    """Return the seconds that the profiler adds to the reported time of a kernel of three inputs, as most have."""
    feed = {"x": np.ones(1, "float32")}
    run, told, count = measured(chain(3), feed, rounds, threads)
    return (told - (run - outside_cost(feed, threads))) / count


def main() -> None:
    """Measure the networks named on the command line."""
    parser = arguments_for(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8, help="samples per run: more make the kernels larger")
    options = parser.parse_args()
    for name in chosen(options):
        with tempfile.TemporaryDirectory() as place:
            folder, model = pathlib.Path(place), NETWORKS[name]()
            data = np.random.default_rng(0).uniform(0, 1, (options.batch, *model.input_shape[1:])).astype("float32")
            q_model = qdq.quantize_model(model, target="onnxruntime")
            qdq.calibrate(q_model, data, verbose=False)
            files = {
                "INT8": qdq.export_onnx(q_model, folder / "int8.onnx").path,
                "float": qdq.export_float_onnx(model, folder / "float.onnx", target="onnxruntime"),
            }
            for kind, path in files.items():
                cost = overhead(options.rounds, options.threads)
                feed = {onnx.load(path).graph.input[0].name: data}
                run, told, count = measured(
                    with_names(onnx.load(path)).SerializeToString(), feed, options.rounds, options.threads
                )
                summed = told - count * cost + outside_cost(feed, options.threads)
                print(
                    f"{name}, {kind}: run {1e3 * run:.3f} ms, sum {1e3 * summed:.3f} ms, ratio {summed / run:.3f}; "
                    f"{count} kernels, overhead {1e6 * cost:.2f} us each ({count * cost / run:.1%} of the run), load "
                    f"{os.getloadavg()[0]:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
