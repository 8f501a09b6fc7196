"""Train the networks that accuracy is measured on: two MobileNets, a small vision transformer, and one for keywords.

    python benchmarks/train_networks.py mobilenet_v2 --data cifar10_jpeg.npz --output mobilenet_v2.keras
    python benchmarks/train_networks.py ds_cnn --data words --output ds_cnn.keras --epochs 12
    python benchmarks/train_networks.py mobilenet_v3 --data cifar10_jpeg.npz --output small.keras --size 64
    python benchmarks/train_networks.py mobilenet_v3 --data cifar10_jpeg.npz --output large.keras --start small.keras

`mobilenet_v3` is that of `keras.applications`, for images enlarged to `--size`. The weights of `--start`, the same
network at another size, are gone on with: small images train fast, and a few epochs of large ones are enough then.

`--data` is one of those of `samples.py`. Images are flipped and shifted by up to four pixels, words are not; AdamW with
a cosine schedule and a warm-up of one epoch in twenty. A run that was stopped goes on with its last whole epoch, also
with another number of epochs. Minutes to an hour on two cores.
"""

import argparse
import json
import pathlib
import time

import architectures
import keras
import numpy as np
import tensorflow as tf
from samples import samples_of

BATCH = 64
SMALL = 32  # height and width of the images of the data
#: How each is built, its learning rate, its weight decay, and whether its images are shifted.
NETWORKS = {
    "mobilenet_v2": (architectures.mobilenet_v2, 4e-3, 1e-4, True),
    "vit": (architectures.vit, 1e-3, 5e-2, True),
    "mobilenet_v3": (architectures.mobilenet_v3, 4e-3, 1e-4, True),
    "ds_cnn": (architectures.ds_cnn, 2e-3, 1e-4, False),
}


def shifted(image: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return an image that is flipped or not, and moved by up to four pixels."""
    flipped = tf.image.stateless_random_flip_left_right(image, seed)
    padded = tf.pad(flipped, ((4, 4), (4, 4), (0, 0)), "REFLECT")
    return tf.image.stateless_random_crop(padded, (32, 32, 3), seed + 1), label


def batches(
    images: np.ndarray, labels: np.ndarray, seed: int, *, shift: bool = True, size: int = SMALL
) -> tf.data.Dataset:
    """Return shuffled batches, other ones in every epoch; images in them flipped, moved and enlarged where asked."""
    seeds = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).batch(2)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=seed)
    if shift:
        data = tf.data.Dataset.zip(data, seeds).map(lambda one, seed: shifted(*one, seed))
    data = data.batch(BATCH)
    if size != SMALL:
        data = data.map(lambda images, labels: (tf.image.resize(images, (size, size)), labels))
    return data.prefetch(2)


def main() -> None:
    """Train one network and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", choices=[*NETWORKS, None])
    parser.add_argument("--data", help="see samples.py")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=224, help="height and width of images, of mobilenet_v3 alone")
    parser.add_argument("--start", type=pathlib.Path, help="a trained network of the same kind whose weights are taken")
    parser.add_argument("--rate", type=float, help="the highest learning rate, instead of the network's own")
    options = parser.parse_args()
    if options.network is None or options.data is None or options.output is None:
        print("Skipped: name a network, and pass --data and --output (see --help).")
        return
    keras.utils.set_random_seed(options.seed)
    build, rate, decay, shift = NETWORKS[options.network]
    rate = options.rate or rate
    enlarged = options.network == "mobilenet_v3"
    size = options.size if enlarged else SMALL
    images, labels = samples_of(options.data, "train", 10_000)
    test = batches(*samples_of(options.data, "test", 5_000), options.seed, shift=False, size=size)
    steps = -(-len(images) // BATCH) * options.epochs
    schedule = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=rate, warmup_steps=steps // 20)
    model = build(keras, size) if enlarged else build(keras)
    if options.start is not None:
        model.set_weights(keras.models.load_model(options.start, compile=False).get_weights())
    # Images are bytes, of which the first normalization takes care.
    optimizer = keras.optimizers.AdamW(schedule, decay)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    start = time.perf_counter()
    backup = keras.callbacks.BackupAndRestore(options.output.with_suffix(".backup"), delete_checkpoint=True)
    data = batches(images, labels, options.seed, shift=shift, size=size)
    model.fit(data, epochs=options.epochs, callbacks=[backup], verbose=2)
    _, accuracy = model.evaluate(test, verbose=0)
    model.compile()
    model.save(options.output)
    minutes = (time.perf_counter() - start) / 60
    told = {"network": options.network, "parameters": model.count_params(), "epochs": options.epochs}
    print(json.dumps({**told, "minutes": round(minutes, 1), "accuracy": round(100 * accuracy, 2)}))


if __name__ == "__main__":
    main()
