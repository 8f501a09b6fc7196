import io

import numpy as np
import pytest
from PIL import Image

from qdq_workbench.cli.demo.data import load_images
from qdq_workbench.errors import DataError, FileAccessError

RANDOM = np.random.default_rng(0)


def save(tmp_path, **arrays):
    path = tmp_path / "images.npz"
    np.savez(path, **arrays)
    return str(path)


def arrays(train=6, test=4, size=(8, 8, 3)):
    return {
        "x_train": RANDOM.integers(0, 256, (train, *size), dtype=np.uint8),
        "y_train": RANDOM.integers(0, 3, train),
        "x_test": RANDOM.integers(0, 256, (test, *size), dtype=np.uint8),
        "y_test": RANDOM.integers(0, 3, test),
    }


def jpeg(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=75)
    return buffer.getvalue()


def test_digits_are_split_evenly_and_scaled():
    data = load_images()

    assert data.x_train.shape == (1078, 16, 16, 1)
    assert data.x_test.shape == (719, 16, 16, 1)
    assert (data.x_train.min(), data.x_train.max()) == (0.0, 1.0)
    assert data.classes == 10
    assert np.bincount(data.y_test).min() >= 69


def test_digits_are_the_same_every_time():
    np.testing.assert_array_equal(load_images().x_test, load_images().x_test)


def test_arrays_keep_their_values(tmp_path):
    given = arrays()

    data = load_images(save(tmp_path, **given))

    np.testing.assert_array_equal(data.x_train, given["x_train"].astype(np.float32))
    assert data.x_train.dtype == np.float32
    assert data.name == "images.npz"


def test_grey_images_get_their_channel(tmp_path):
    assert load_images(save(tmp_path, **arrays(size=(8, 8)))).x_train.shape == (6, 8, 8, 1)


def test_scaled_brings_training_images_to_one(tmp_path):
    scaled = load_images(save(tmp_path, **arrays())).scaled()

    assert scaled.x_train.max() == pytest.approx(1.0)


def test_jpeg_bytes_decode_as_pillow_decodes_them(tmp_path):
    images = RANDOM.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    files = [jpeg(image) for image in images]
    offsets = np.cumsum([0, *map(len, files)])
    stored = np.frombuffer(b"".join(files), np.uint8)
    labels = np.arange(5, dtype=np.uint8)

    data = load_images(
        save(
            tmp_path,
            jpeg_train=stored,
            off_train=offsets,
            y_train=labels,
            jpeg_test=stored,
            off_test=offsets,
            y_test=labels,
        )
    )

    expected = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
    np.testing.assert_array_equal(data.x_test, expected.astype(np.float32))


@pytest.mark.parametrize(
    "change",
    [
        {"y_train": np.zeros(5, int)},
        {"x_test": np.zeros((4, 9, 9, 3))},
        {"x_train": np.zeros((0, 8, 8, 3)), "y_train": np.zeros(0)},
        {"x_train": np.full((6, 8, 8, 3), np.nan)},
    ],
    ids=["labels", "size", "empty", "NaN"],
)
def test_data_that_do_not_fit_are_refused(tmp_path, change):
    with pytest.raises(DataError, match=r"images\.npz"):
        load_images(save(tmp_path, **{**arrays(), **change}))


def test_an_archive_without_the_names_says_which(tmp_path):
    with pytest.raises(
        DataError, match=r"x_train, y_train, x_test, y_test, x \[N.*numpy\.savez.*From your model to a verified file"
    ):
        load_images(save(tmp_path, pixels=np.zeros(3)))


def test_broken_jpeg_bytes_are_a_named_error(tmp_path):
    noise, offsets, labels = np.zeros(10, np.uint8), np.array([0, 10]), np.zeros(1)

    with pytest.raises(DataError, match="JPEG"):
        load_images(
            save(
                tmp_path,
                jpeg_train=noise,
                off_train=offsets,
                y_train=labels,
                jpeg_test=noise,
                off_test=offsets,
                y_test=labels,
            )
        )


def test_what_is_no_archive_is_a_named_error(tmp_path):
    (tmp_path / "images.npz").write_text("text")

    with pytest.raises(DataError, match="holds no NumPy arrays"):
        load_images(str(tmp_path / "images.npz"))
    with pytest.raises(FileAccessError):
        load_images(str(tmp_path / "other.npz"))
