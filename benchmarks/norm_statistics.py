"""What statistics taken anew give back behind a short training: a depthwise network on scikit-learn's digits.

python benchmarks/norm_statistics.py [--seeds 4] [--weight-bits 3] [--activation-bits 4] [--epochs 2]
"""

import argparse

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

import qdq_workbench as qdq

FLOAT_EPOCHS, LEARNING_RATE, SPLIT = 15, 2e-3, 1200


def network() -> keras.Model:
    """Return a network of four depthwise blocks, each layer with its normalization at Keras's momentum of 0.99."""

    def normalized(value: keras.KerasTensor) -> keras.KerasTensor:
        return layers.ReLU()(layers.BatchNormalization()(value))

    image = keras.Input((8, 8, 1))
    value = normalized(layers.Conv2D(16, 3, padding="same", use_bias=False)(image))
    for _ in range(4):
        value = normalized(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(value))
        value = normalized(layers.Conv2D(24, 1, use_bias=False)(value))
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(value)))


def trained(model: keras.Model, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
    """Train in batches of 32."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(LEARNING_RATE), loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=32, epochs=epochs, verbose=0)


def measure(seed: int, options: argparse.Namespace) -> list[float]:
    """Return accuracies in percent: float, float anew; calibrated, trained, trained and anew."""
    data = load_digits()
    x, y = data.images[..., None].astype("float32") / 16.0, data.target
    train, test = (x[:SPLIT], y[:SPLIT]), (x[SPLIT:], y[SPLIT:])
    keras.utils.set_random_seed(seed)
    model = network()
    found = []

    def note(judged: keras.Model) -> None:
        found.append(100.0 * float(np.mean(np.argmax(judged.predict(test[0], verbose=0), -1) == test[1])))

    trained(model, *train, FLOAT_EPOCHS)
    note(model)
    if options.settled:
        qdq.correction.estimate_statistics(model, train[0], verbose=False)
    note(model)
    bits = {"weight": {"num_bits": options.weight_bits}, "activation": {"num_bits": options.activation_bits}}
    spec = qdq.QuantizationSpec()
    kinds = ["Conv2D", "DepthwiseConv2D", "Dense"]
    spec.add(kinds, is_keras_class=True, quantize_config=qdq.LayerQuantizeConfig(**bits))
    q_model = qdq.quantize_model(model, quantization_spec=spec, target="onnxruntime")
    qdq.calibrate(q_model, train[0], "mse", verbose=False)
    note(q_model)
    trained(q_model, *train, options.epochs)
    note(q_model)
    qdq.correction.estimate_statistics(q_model, train[0], verbose=False)
    note(q_model)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--weight-bits", type=int, default=3)
    parser.add_argument("--activation-bits", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2, help="of quantization-aware training")
    parser.add_argument("--settled", action="store_true", help="take the float model's statistics anew first")
    chosen = parser.parse_args()
    rows = [measure(seed, chosen) for seed in range(chosen.seeds)]
    titles = ("float", "float, anew", "calibrated", "trained", "trained, anew")
    for title, column in zip(titles, zip(*rows, strict=True), strict=True):
        print(f"{title:>14}  {np.mean(column):5.1f} ({min(column):.1f} to {max(column):.1f})")
