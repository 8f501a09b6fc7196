"""Train the networks that accuracy is measured on: a MobileNetV2, a small vision transformer, and one for keywords.

    python benchmarks/train_networks.py mobilenet_v2 --data cifar10_jpeg.npz --output mobilenet_v2.keras
    python benchmarks/train_networks.py ds_cnn --data words --output ds_cnn.keras --epochs 12

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
#: How each is built, its learning rate, its weight decay, and whether its images are shifted.
NETWORKS = {
    "mobilenet_v2": (architectures.mobilenet_v2, 4e-3, 1e-4, True),
    "vit": (architectures.vit, 1e-3, 5e-2, True),
    "ds_cnn": (architectures.ds_cnn, 2e-3, 1e-4, False),
}


def shifted(image: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return an image that is flipped or not, and moved by up to four pixels."""
    flipped = tf.image.stateless_random_flip_left_right(image, seed)
    padded = tf.pad(flipped, ((4, 4), (4, 4), (0, 0)), "REFLECT")
    return tf.image.stateless_random_crop(padded, (32, 32, 3), seed + 1), label


def batches(images: np.ndarray, labels: np.ndarray, seed: int, *, shift: bool = True) -> tf.data.Dataset:
    """Return shuffled batches, other ones in every epoch; images in them flipped and moved where asked."""
    seeds = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).batch(2)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=seed)
    if shift:
        data = tf.data.Dataset.zip(data, seeds).map(lambda one, seed: shifted(*one, seed))
    return data.batch(BATCH).prefetch(2)


def main() -> None:
    """Train one network and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", choices=[*NETWORKS, None])
    parser.add_argument("--data", help="see samples.py")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.network is None or options.data is None or options.output is None:
        print("Skipped: name a network, and pass --data and --output (see --help).")
        return
    keras.utils.set_random_seed(options.seed)
    build, rate, decay, shift = NETWORKS[options.network]
    images, labels = samples_of(options.data, "train", 10_000)
    test = samples_of(options.data, "test", 5_000)
    steps = -(-len(images) // BATCH) * options.epochs
    schedule = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=rate, warmup_steps=steps // 20)
    model = build(keras)
    # Images are bytes, of which the first normalization takes care.
    optimizer = keras.optimizers.AdamW(schedule, decay)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    start = time.perf_counter()
    backup = keras.callbacks.BackupAndRestore(options.output.with_suffix(".backup"), delete_checkpoint=True)
    model.fit(batches(images, labels, options.seed, shift=shift), epochs=options.epochs, callbacks=[backup], verbose=2)
    _, accuracy = model.evaluate(*test, batch_size=500, verbose=0)
    model.compile()
    model.save(options.output)
    minutes = (time.perf_counter() - start) / 60
    told = {"network": options.network, "parameters": model.count_params(), "epochs": options.epochs}
    print(json.dumps({**told, "minutes": round(minutes, 1), "accuracy": round(100 * accuracy, 2)}))


if __name__ == "__main__":
    main()
