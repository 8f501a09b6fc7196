"""A bench that was saved and loaded trains and scores as before: loss, optimizer and metrics come with it."""

import json
import warnings

import keras
import pytest
from small_benches import tiny_data, tiny_model

from qdq_widgets import Workbench
from qdq_widgets.errors import BenchError


def loaded(bench, folder, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        bench.save(folder)
    return Workbench.load(folder, validation_data=tiny_data(), **arguments)._work.setup


def compiled(setup):
    model = tiny_model()
    setup.compile(model)
    config = model.get_compile_config()
    config["optimizer"]["config"].pop("name")  # Keras counts the optimizers of a process
    return config


def test_what_the_model_is_compiled_with_comes_along(tmp_path):
    bench = Workbench(tiny_model(), validation_data=tiny_data())
    assert compiled(loaded(bench, tmp_path)) == compiled(bench._work.setup)


def test_what_was_given_comes_along_and_gives_way_to_what_is_given_anew(tmp_path):
    model = tiny_model()
    model.compiled = False
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=2)
    bench = Workbench(model, loss=loss, optimizer=keras.optimizers.SGD(0.25, momentum=0.5), metrics=["accuracy"])
    assert compiled(loaded(bench, tmp_path)) == compiled(bench._work.setup)
    anew = loaded(bench, tmp_path, loss="mse", metrics=["mae"])
    assert (anew.loss, anew.metrics, anew.usual_rate) == ("mse", ["mae"], 0.25)


def test_a_function_of_the_users_own_is_named_and_given_again(tmp_path):
    def own_loss(truth, found):
        return keras.ops.mean(keras.ops.square(found)) + 0 * keras.ops.sum(truth)

    bench = Workbench(tiny_model(), loss=own_loss, metrics=["accuracy"])
    with pytest.warns(UserWarning, match=r"The loss of the bench cannot be saved.*load\(folder, loss=\.\.\.\)"):
        bench.save(tmp_path)
    setup = Workbench.load(tmp_path)._work.setup
    assert (setup.loss, setup.metrics) == (None, ["accuracy"])
    assert Workbench.load(tmp_path, loss=own_loss)._work.setup.loss is own_loss


def test_a_folder_that_somebody_changed_is_a_named_error(tmp_path):
    path = Workbench(tiny_model()).save(tmp_path) / "bench.json"
    data = json.loads(path.read_text())
    for value, said in (
        ({"loss": {"class_name": "Nothing", "config": {}}}, "loss cannot be made again"),
        (7, "damaged"),
    ):
        path.write_text(json.dumps({**data, "training": value}))
        with pytest.raises(BenchError, match=said):
            Workbench.load(tmp_path)
    path.write_text(json.dumps({key: value for key, value in data.items() if key != "training"}))
    assert not Workbench.load(tmp_path)._work.setup.knows_loss
