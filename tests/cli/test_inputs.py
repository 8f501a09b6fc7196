import argparse

import numpy as np
import pytest

from qdq_workbench.cli.inputs import (
    add_planning_arguments,
    load_arrays,
    load_model,
    load_plan,
    load_samples,
    planning_arguments,
    positive,
    positive_number,
    require_file,
    share,
)
from qdq_workbench.errors import DataError, FileAccessError, SpecError, UnsupportedModelError

IMAGES = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_npy_is_one_array(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)

    np.testing.assert_array_equal(load_arrays(str(tmp_path / "x.npy")), IMAGES)


@pytest.mark.parametrize("arrays", [{"images": IMAGES}, {"x": IMAGES, "y": IMAGES + 1}], ids=["only one", "called x"])
def test_npz_gives_its_only_array_or_x(tmp_path, arrays):
    np.savez(tmp_path / "x.npz", **arrays)

    np.testing.assert_array_equal(load_arrays(str(tmp_path / "x.npz")), IMAGES)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("names", [("x_train", "y_train", "x_test", "y_test"), ("x", "y"), ("pictures", "y")], ids=str)
def test_an_archive_with_labels_gives_its_inputs(tmp_path, names, part):
    np.savez(tmp_path / "x.npz", **{name: IMAGES + index for index, name in enumerate(names)})

    expected = IMAGES + (2 if part == "test" and len(names) == 4 else 0)
    np.testing.assert_array_equal(load_arrays(str(tmp_path / "x.npz"), part), expected)


def test_npz_gives_one_array_per_model_input(tmp_path):
    np.savez(tmp_path / "x.npz", left=IMAGES, right=IMAGES + 1)

    arrays = load_arrays(str(tmp_path / "x.npz"))

    assert sorted(arrays) == ["left", "right"]


def test_pickled_objects_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"code": "runs"}], dtype=object), allow_pickle=True)

    with pytest.raises(DataError, match="plain arrays"):
        load_arrays(str(tmp_path / "x.npy"))


def test_a_missing_file_shows_its_neighbours(tmp_path):
    (tmp_path / "model.keras").touch()

    with pytest.raises(FileAccessError, match=r"Did you mean 'model\.keras'"):
        require_file(str(tmp_path / "modle.keras"))


def test_a_file_that_is_no_model_is_a_named_error(tmp_path):
    (tmp_path / "model.keras").write_text("not a model")

    with pytest.raises(UnsupportedModelError, match=r"Received: path="):
        load_model(str(tmp_path / "model.keras"))


@pytest.mark.parametrize("text", ["not json", "[1, 2]", '{"format": "something else"}'])
def test_a_file_that_is_no_plan_is_a_named_error(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)

    with pytest.raises(SpecError):
        load_plan(str(tmp_path / "plan.json"))


def test_planning_arguments_have_the_defaults_of_the_library():
    parser = argparse.ArgumentParser()
    add_planning_arguments(parser)

    found = planning_arguments(parser.parse_args([]), None)

    assert found == {
        "quantization_mode": "full",
        "quantization_spec": None,
        "custom_qdq_cases": None,
        "target": "tensorrt",
    }


@pytest.mark.parametrize("arrays", [{"y": IMAGES, "x": IMAGES + 1}, {"labels": IMAGES}], ids=["called y", "only one"])
def test_an_archive_of_labels_gives_y_or_its_only_array(tmp_path, arrays):
    np.save(tmp_path / "x.npy", IMAGES)
    np.savez(tmp_path / "y.npz", **arrays)

    np.testing.assert_array_equal(load_samples(str(tmp_path / "x.npy"), str(tmp_path / "y.npz"))[1], IMAGES)


@pytest.mark.parametrize(("part", "there"), [("test", "train"), ("train", "test")])
def test_samples_of_the_other_part_are_taken_where_there_are_no_others(tmp_path, part, there):
    np.savez(tmp_path / "data.npz", **{f"x_{there}": IMAGES, f"y_{there}": IMAGES[:, 0]})
    x, y = load_samples(str(tmp_path / "data.npz"), part=part)

    np.testing.assert_array_equal(x, IMAGES)
    np.testing.assert_array_equal(y, IMAGES[:, 0])
    np.savez(tmp_path / "both.npz", x=IMAGES[:1], y=IMAGES[:1, 0], **{f"x_{there}": IMAGES})
    assert len(load_samples(str(tmp_path / "both.npz"), part=part)[0]) == 1


def test_an_archive_of_several_arrays_without_y_holds_no_labels(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    np.savez(tmp_path / "y.npz", x=IMAGES, weights=IMAGES)

    with pytest.raises(DataError, match=r"must hold them as y.*y\.npz' with the arrays x, weights"):
        load_samples(str(tmp_path / "x.npy"), str(tmp_path / "y.npz"))


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (positive, "1e3", "expected a positive whole number, received 1e3"),
        (positive_number, "fast", "expected a positive number, received fast"),
        (share, "20%", "expected a number between 0 and 1, received 20%"),
    ],
)
def test_a_text_that_is_no_number_is_told_what_is_expected(kind, text, says):
    with pytest.raises(argparse.ArgumentTypeError, match=says):
        kind(text)
