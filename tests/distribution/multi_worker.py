"""One of two workers of MultiWorkerMirroredStrategy on loopback, or one process alone; prints JSON.

    python multi_worker.py INDEX PORT PORT
    python multi_worker.py alone

It trains by a loop of its own and by Keras's `fit`, with the functions that `fit` lacks under this strategy.
"""

import json
import os
import sys

PORTS = sys.argv[2:4]
if PORTS:
    cluster = {"worker": [f"127.0.0.1:{port}" for port in PORTS]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": int(sys.argv[1])}})

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

# before anything else touches TensorFlow
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy() if PORTS else tf.distribute.get_strategy()

import keras  # noqa: E402
from keras import layers  # noqa: E402

import qdq_workbench as qdq  # noqa: E402

SAMPLES, BATCH = 32, 16


def images():
    """Samples and labels."""
    generator = np.random.default_rng(0)
    return generator.normal(size=(SAMPLES, 6, 6, 2)).astype("float32"), generator.integers(0, 3, SAMPLES)


def batches():
    """The samples in batches of all workers."""
    return tf.data.Dataset.from_tensor_slices(images()).batch(BATCH)


def quantized(method):
    """A small quantized network with ranges that move."""
    keras.utils.set_random_seed(1)
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_config=qdq.LayerQuantizeConfig(activation={"quantizer": method}))
    x = keras.Input((6, 6, 2), name="image")
    y = layers.GlobalAveragePooling2D(name="pool")(layers.Conv2D(4, 3, activation="relu", name="conv")(x))
    return qdq.quantize_model(keras.Model(x, layers.Dense(3, name="head")(y)), quantization_spec=spec)


def own_loop(q_model):
    """A training loop of one's own; the losses."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    with STRATEGY.scope():
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(q_model.trainable_variables)

    @tf.function
    def step(batch):
        def on_replica(samples, labels):
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(loss(labels, q_model(samples, training=True))) / BATCH
            gradients = tape.gradient(value, q_model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, q_model.trainable_variables, strict=True))
            return value

        return STRATEGY.reduce(tf.distribute.ReduceOp.SUM, STRATEGY.run(on_replica, args=batch), axis=None)

    return [float(step(batch)) for batch in STRATEGY.experimental_distribute_dataset(batches())]


def make_fit_work(model, strategy):
    """Give a model the functions that Keras's trainer lacks with several workers."""

    def stepping(step):
        @tf.function
        def on_batch(batch):
            results = strategy.run(step, args=(batch,))
            return keras.tree.map_structure(lambda value: strategy.reduce("MEAN", value, axis=None), results)

        return lambda iterator: on_batch(next(iterator))

    model.train_function, model.test_function = stepping(model.train_step), stepping(model.test_step)
    model._maybe_symbolic_build = lambda **_: None  # the model is built; Keras would average a batch that it cannot


def by_fit(q_model):
    """Two epochs of Keras's `fit` and an evaluation; the losses."""
    with STRATEGY.scope():
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        q_model.compile(keras.optimizers.SGD(0.05), loss, jit_compile=False)
    if PORTS:
        make_fit_work(q_model, STRATEGY)
    losses = q_model.fit(batches(), epochs=2, verbose=0).history["loss"]
    return [float(value) for value in (*losses, q_model.evaluate(batches(), verbose=0))]


def main():
    """Print what must be that of the other worker, and of one process."""
    found = {"replicas": STRATEGY.num_replicas_in_sync}
    for name, method, train in (("loop", "all_values", own_loop), ("fit", "moving_average", by_fit)):
        with STRATEGY.scope():
            q_model = quantized(method)
        losses = train(q_model)
        kernel = float(np.abs(np.asarray(q_model.get_layer("quant_conv").layer.kernel)).sum())
        found[name] = {"losses": losses, "kernel": kernel, "ranges": q_model.activation_ranges()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
