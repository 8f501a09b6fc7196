"""Trains one quantized model alone and under MirroredStrategy on two logical CPUs; prints what came out as JSON.

Run in a process of its own: logical devices are set before TensorFlow starts.
"""

import json

import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

import keras  # noqa: E402
from keras import layers  # noqa: E402

import qdq_workbench as qdq  # noqa: E402

SAMPLES, BATCH = 64, 16


def network():
    """A small residual network; its BatchNormalization sees the batches of all replicas, as one process does."""
    x = keras.Input((6, 6, 2), name="image")
    y = layers.Conv2D(4, 3, padding="same", name="stem")(x)
    y = layers.ReLU(name="relu")(layers.BatchNormalization(synchronized=True, name="norm")(y))
    y = layers.Add(name="add")([layers.Conv2D(4, 3, padding="same", name="conv")(y), y])
    return keras.Model(x, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="pool")(y)))


def quantized(method, *, calibrated=False, freeze=False):
    """The same quantized model at every call."""
    keras.utils.set_random_seed(1)
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_config=qdq.LayerQuantizeConfig(activation={"quantizer": method}))
    q_model = qdq.quantize_model(network(), quantization_spec=spec, target="onnxruntime")
    if calibrated:
        qdq.calibrate(q_model, images()[0], verbose=False, freeze=freeze)
    q_model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return q_model


def images():
    """Samples and labels."""
    generator = np.random.default_rng(0)
    return generator.normal(size=(SAMPLES, 6, 6, 2)).astype("float32"), generator.integers(0, 3, SAMPLES)


def train(q_model):
    """Two epochs in a fixed order; the losses."""
    x, y = images()
    history = q_model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return [float(value) for value in history.history["loss"]]


def per_replica(q_model):
    """Largest difference between the replicas' copies of the variables, by kind."""
    worst = {"ranges": 0.0, "weights": 0.0}
    for variable in q_model.variables:
        copies = [np.asarray(copy, np.float64) for copy in getattr(variable.value, "values", [variable.value])]
        apart = max(float(np.abs(copy - copies[0]).max(initial=0.0)) for copy in copies)
        kind = "ranges" if "range_" in variable.path else "weights"
        worst[kind] = max(worst[kind], apart)
    return worst


SETTINGS = {
    "frozen": {"method": "moving_average", "calibrated": True, "freeze": True},
    "all_values": {"method": "all_values"},
    "lsq": {"method": "lsq"},
}


def main():
    """Print the figures of every way to find a range."""
    found = {}
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for name, settings in SETTINGS.items():
        alone = quantized(**settings)
        start = alone.activation_ranges()
        losses = train(alone)
        with strategy.scope():
            mirrored = quantized(**settings)
        found[name] = {
            "replicas": strategy.num_replicas_in_sync,
            "start": start,
            "losses": losses,
            "ranges": alone.activation_ranges(),
            "mirrored losses": train(mirrored),
            "mirrored ranges": mirrored.activation_ranges(),
            "between replicas": per_replica(mirrored),
            "weights apart": max(
                float(np.abs(np.asarray(a) - np.asarray(b)).max())
                for a, b in zip(alone.trainable_variables, mirrored.trainable_variables, strict=True)
            ),
        }
        if name == "frozen":  # what an evaluation computes does not depend on how ranges were found
            scores = [q_model.evaluate(*images(), verbose=0) for q_model in (alone, mirrored)]
            found[name]["evaluation apart"] = abs(scores[0] - scores[1])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
