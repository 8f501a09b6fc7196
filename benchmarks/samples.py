"""What networks are trained and measured on: JPEGs in one file, folders of pictures, or words made by arithmetic.

`--data` of `train_networks.py` and `accuracy_table.py` is one of

* a file `.npz` with JPEGs as `jpeg_train`, `off_train`, `y_train` and the same of `test`,
* a folder of pictures, each below the folder of its class: `train/<class>/*.jpg`, and `test/` or `val/` likewise;
  without `train`, every fifth picture of a class is one to train and to calibrate with,
* "words": spoken words as a microphone's log-mel energies might show them (`spoken_words.py`), which needs no file.
"""

import pathlib
from collections.abc import Callable

import numpy as np
import spoken_words
import tensorflow as tf
from ptq_accuracy import images_of

WORDS = "words"
SPLITS = {"train": ("train",), "test": ("test", "val")}
PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
Prepare = Callable[[np.ndarray], np.ndarray]


def samples_of(
    data: str, split: str, count: int, size: int = 224, classes: int | None = None, prepare: Prepare | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels of one split, in a random order that is always the same.

    Args:
        data: As above.
        split: "train" or "test".
        count: How many at most.
        size: Height and width of pictures from a folder.
        classes: How many classes the model knows; None for one of every folder.
        prepare: What pictures are put through before the model reads them.
    """
    if data == WORDS:
        return spoken_words.words(split, count)
    path = pathlib.Path(data)
    if path.is_dir():
        return _pictures_of(path, split, count, size, classes, prepare)
    if not path.exists():
        raise SystemExit(f"--data must be a file, a folder of pictures, or {WORDS!r}. Received: {data!r}")
    return images_of(path, split, min(count, len(np.load(path)[f"y_{split}"])))


def class_folders(folder: pathlib.Path, split: str = "test") -> list[pathlib.Path]:
    """Return the folders of the classes, in the order of their names.

    Args:
        folder: The folder of `--data`.
        split: "train" or "test".
    """
    found = next((folder / name for name in SPLITS[split] if (folder / name).is_dir()), None)
    classes = sorted(path for path in (found or folder).iterdir() if path.is_dir() and path.name not in SPLITS["train"])
    if not classes:
        raise SystemExit(f"Expected a folder of pictures per class, such as {folder}/test/<class>. Found none.")
    return classes


def _pictures_of(
    folder: pathlib.Path, split: str, count: int, size: int, classes: int | None, prepare: Prepare | None
) -> tuple[np.ndarray, np.ndarray]:
    apart = (folder / "train").is_dir()
    found = class_folders(folder, split if apart else "test")
    known = [(path, label) for path, label in zip(found, _labels(found, classes), strict=True)]
    chosen = []
    for path, label in known:
        pictures = sorted(each for each in path.rglob("*") if each.suffix.lower() in PICTURES)
        own = pictures if apart else [p for i, p in enumerate(pictures) if (i % 5 == 0) == (split == "train")]
        chosen += [(picture, label) for picture in own]
    if not chosen:
        raise SystemExit(f"Expected pictures ({', '.join(PICTURES)}) to {split} with. Found none in {folder}.")
    order = np.random.default_rng(0).permutation(len(chosen))[:count]
    images = np.stack([_picture(chosen[i][0], size) for i in order])
    return images if prepare is None else prepare(images), np.array([chosen[i][1] for i in order])


def _labels(folders: list[pathlib.Path], classes: int | None) -> list[int]:
    """Return the class of every folder: its place, or its name where not all classes have one."""
    if classes is None or len(folders) == classes:
        return list(range(len(folders)))
    names = [path.name for path in folders]
    if not all(name.isdecimal() and int(name) < classes for name in names):
        raise SystemExit(
            f"The model knows {classes} classes, the data have {len(names)} folders, so that their order does not tell "
            f"which these are. Name them 0 to {classes - 1}, or have a folder for every class. Received: {names[0]!r}"
        )
    return [int(name) for name in names]


def _picture(path: pathlib.Path, size: int) -> np.ndarray:
    """Return the middle of a picture whose shorter side is an eighth longer than the square, as ImageNet is read."""
    image = tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False)
    shorter = min(image.shape[:2])
    sides = [max(size, round(side * size * 8 / 7 / shorter)) for side in image.shape[:2]]
    resized = tf.image.resize(tf.cast(image, tf.float32), sides, antialias=True)
    return tf.image.resize_with_crop_or_pad(resized, size, size).numpy()
