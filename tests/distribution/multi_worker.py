"""One of two workers of MultiWorkerMirroredStrategy on loopback: a training loop of one's own; prints JSON.

    python multi_worker.py INDEX PORT PORT [--fit]

With `--fit` Keras's own `fit` is tried instead, to see whether it works by now.
"""

import json
import os
import sys

INDEX, PORTS = int(sys.argv[1]), sys.argv[2:4]
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": [f"127.0.0.1:{port}" for port in PORTS]}, "task": {"type": "worker", "index": INDEX}}
)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else touches TensorFlow

import keras  # noqa: E402
from keras import layers  # noqa: E402

import qdq_workbench as qdq  # noqa: E402

SAMPLES, BATCH = 32, 16


def images():
    """Samples and labels."""
    generator = np.random.default_rng(0)
    return generator.normal(size=(SAMPLES, 6, 6, 2)).astype("float32"), generator.integers(0, 3, SAMPLES)


def quantized():
    """A small quantized network with ranges that move."""
    keras.utils.set_random_seed(1)
    x = keras.Input((6, 6, 2), name="image")
    y = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, activation="relu", name="conv")(x))
    return qdq.quantize_model(keras.Model(x, layers.Dense(3, name="head")(y)))


def main():
    """Train for two steps and print the ranges, which must be those of the other worker."""
    x, y = images()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    with STRATEGY.scope():
        q_model = quantized()
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(q_model.trainable_variables)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    if "--fit" in sys.argv:
        with STRATEGY.scope():
            q_model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        q_model.fit(data, epochs=1, verbose=0)
        print(json.dumps({"fit": "works"}))
        return

    @tf.function
    def step(batch):
        def on_replica(samples, labels):
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(loss(labels, q_model(samples, training=True))) / BATCH
            gradients = tape.gradient(value, q_model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, q_model.trainable_variables, strict=True))
            return value

        return STRATEGY.reduce(tf.distribute.ReduceOp.SUM, STRATEGY.run(on_replica, args=batch), axis=None)

    losses = [float(step(batch)) for batch in STRATEGY.experimental_distribute_dataset(data)]
    kernel = float(np.abs(np.asarray(q_model.get_layer("quant_conv").layer.kernel)).sum())
    found = {"replicas": STRATEGY.num_replicas_in_sync, "losses": losses, "kernel": kernel}
    print(json.dumps({**found, "ranges": q_model.activation_ranges()}))


if __name__ == "__main__":
    main()
