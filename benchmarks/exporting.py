"""Time of `export_onnx`, as a ratio to tf2onnx's own conversion of the float model.

python benchmarks/exporting.py [resnet8 mobilenet_v2 resnet50]
"""

import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf
import tf2onnx
from networks import NETWORKS, arguments_for, chosen
from rounds import interleaved, print_ratios

import qdq_workbench as qdq


def convert_float(model: keras.Model, path: pathlib.Path) -> None:
    """Convert a float model with tf2onnx alone."""
    function = tf.function(lambda x: model(x, training=False))
    signature = [tf.TensorSpec((None, *model.input_shape[1:]), tf.float32, name="image")]
    proto, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=17)
    path.write_bytes(proto.SerializeToString())


def measure(name: str) -> None:
    """Print the ratio for one network."""
    source = NETWORKS[name]()
    q_model = qdq.quantize_model(source)
    images = np.random.default_rng(0).normal(size=(8, *source.input_shape[1:])).astype("float32")
    qdq.calibrate(q_model, images, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        candidates = {
            "tf2onnx, float": lambda: convert_float(source, path),
            "export_onnx": lambda: qdq.export_onnx(q_model, path),
        }
        print_ratios(name, interleaved(candidates, rounds=3), "tf2onnx, float")


def main() -> None:
    """Measure the networks named on the command line, or all of them."""
    for name in chosen(arguments_for(__doc__).parse_args()):
        measure(name)


if __name__ == "__main__":
    main()
