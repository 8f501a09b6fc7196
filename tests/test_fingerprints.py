"""What belongs to a fingerprint and what does not, and that files of before stay those of their runs."""

import keras
import numpy as np
import pytest

import qdq_workbench as qdq
from qdq_workbench._fingerprints import array_digest, bytes_digest, fingerprint_of, text_of

ARRAY = np.arange(6, dtype=np.float32)


class Somewhere:
    def __str__(self):
        return "somewhere"


PLACE = Somewhere()


def test_an_array_counts_with_type_and_shape():
    alike = [ARRAY, ARRAY.reshape(2, 3), ARRAY.view(np.int32), ARRAY.reshape(2, 3).T]
    assert len({array_digest(array) for array in alike}) == 4
    assert array_digest(ARRAY.reshape(2, 3).T) == array_digest(ARRAY.reshape(2, 3).T.copy())


def test_the_hash_of_elements_is_that_of_their_order_alone():
    codes = np.arange(6, dtype=np.int8).reshape(2, 3)
    assert bytes_digest(codes) == bytes_digest(np.asfortranarray(codes)) == bytes_digest(codes.reshape(-1))
    assert bytes_digest(codes) == bytes_digest(codes.view(np.uint8))
    assert bytes_digest(codes) != bytes_digest(codes.T)


def test_the_state_of_a_random_generator_does_not_count():
    generator, weight = keras.random.SeedGenerator(1), keras.Variable(ARRAY, name="weight")
    before = fingerprint_of("text", [weight, generator.state])
    keras.random.normal((2,), seed=generator)
    assert fingerprint_of("text", [weight, generator.state]) == before
    weight.assign(ARRAY + 1)
    assert fingerprint_of("text", [weight, generator.state]) != before


def test_a_fingerprint_is_the_same_in_every_version():
    """A file to resume from outlives the version that wrote it."""
    told = text_of({"b": 1, "a": PLACE}, "x")
    assert told == '[{"a": "somewhere", "b": 1}, "x"]'
    found = fingerprint_of(told, [keras.Variable(ARRAY, name="w")], [ARRAY])
    assert found == "45d37d9ef64185168b54aa52bc92af3c621b5dd77ca061bbd809a70b8290160e"


def test_a_training_is_told_by_arrays_too(tmp_path):
    def mark(*identity):
        return qdq.files.TrainingCheckpoint(tmp_path / "c.npz", identity)._file.fingerprint

    assert mark(ARRAY, 1) == mark(keras.Variable(ARRAY), 1) == mark(array_digest(ARRAY), 1)
    assert mark(ARRAY, 1) != mark(ARRAY + 1, 1)
    assert mark({"rate": 0.1, "epochs": 3}) == mark({"epochs": 3, "rate": 0.1})  # the same training, told otherwise
    with pytest.raises(TypeError, match="Somewhere is neither JSON-compatible nor an array"):
        mark(PLACE)
