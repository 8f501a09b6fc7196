"""The first training step and the first prediction, which TensorFlow traces, as ratios of time to the float model.

python benchmarks/first_step.py [resnet8 mobilenet_v2 resnet50]
"""

import keras
import numpy as np
from networks import NETWORKS, arguments_for, chosen
from rounds import interleaved, print_ratios

import qdq_workbench as qdq

ROUNDS, BATCH = 3, 4


def first_training_step(model: keras.Model, x: np.ndarray, y: np.ndarray) -> None:
    """Compile a model anew, so that its training step is traced again, and take the step."""
    model.compile(keras.optimizers.SGD(1e-4), "sparse_categorical_crossentropy")
    model.train_on_batch(x, y)


def first_prediction(model: keras.Model, x: np.ndarray) -> None:
    """Trace a model's prediction again, and predict."""
    model.make_predict_function(force=True)
    model.predict(x, verbose=0)


def measure(name: str) -> None:
    """Print the ratios for one network."""
    source = NETWORKS[name]()
    generator = np.random.default_rng(0)
    x = generator.normal(size=(BATCH, *source.input_shape[1:])).astype("float32")
    y = generator.integers(0, 10, BATCH)
    q_model = qdq.quantize_model(source, target="onnxruntime")
    qdq.calibrate(q_model, x, verbose=False, freeze=True)
    models = {"float": source, "float again": keras.models.clone_model(source), "quantized": q_model}
    steps = {key: lambda model=model: first_training_step(model, x, y) for key, model in models.items()}
    print_ratios(f"{name}, first training step", interleaved(steps, ROUNDS), "float")
    predictions = {key: lambda model=model: first_prediction(model, x) for key, model in models.items()}
    print_ratios(f"{name}, first prediction", interleaved(predictions, ROUNDS), "float")


if __name__ == "__main__":
    for network in chosen(arguments_for(__doc__).parse_args()):
        measure(network)
