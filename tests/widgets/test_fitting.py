"""How the bench compiles what it trains: the learning rate that was asked for reaches the optimizer."""

import keras
import pytest
from keras import layers
from small_benches import tiny_data, tiny_model

from qdq_widgets import Workbench
from qdq_widgets.fitting import DEFAULT_RATE, TrainingSetup, evaluate

SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.9)


def compiled(optimizer, rate):
    """Return a model's optimizer as the bench gives it one."""
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    TrainingSetup(model, loss="mse", optimizer=optimizer).compile(model, rate)
    return model.optimizer


@pytest.mark.parametrize(
    "optimizer",
    [
        *(None, "sgd", keras.optimizers.SGD(0.25), keras.optimizers.SGD(SCHEDULE)),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.25)),
    ],
    ids=["none", "name", "object", "schedule", "of another"],
)
@pytest.mark.parametrize("rate", [0.03, 1e-7, 0.0])
def test_the_rate_that_was_asked_for_is_the_optimizers(optimizer, rate):
    assert float(compiled(optimizer, rate).learning_rate) == pytest.approx(rate)


@pytest.mark.parametrize("rate", [None, 0.03])
@pytest.mark.parametrize(
    "optimizer",
    [
        *(None, "sgd", "adam", keras.optimizers.SGD(0.25, momentum=0.9)),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.25, name="inner")),
    ],
    ids=["none", "sgd", "adam", "object", "of another"],
)
def test_the_code_compiles_as_the_bench_does(optimizer, rate):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    lines = TrainingSetup(model, loss="mse", optimizer=optimizer).compile_code("model", rate)
    exec("\n".join(lines), {"q_model": model, "optimizer": optimizer})
    wanted = compiled(optimizer, rate)
    assert type(model.optimizer) is type(wanted)
    assert {**model.optimizer.get_config(), "name": ""} == {**wanted.get_config(), "name": ""}


@pytest.mark.parametrize(
    ("optimizer", "rate"), [(None, DEFAULT_RATE), ("sgd", 0.01), (keras.optimizers.SGD(0.25), 0.25)]
)
def test_without_one_the_optimizer_keeps_its_own(optimizer, rate):
    assert float(compiled(optimizer, None).learning_rate) == pytest.approx(rate)


def test_the_optimizer_that_was_given_is_not_the_one_that_trains():
    given = keras.optimizers.SGD(0.25)
    assert compiled(given, 0.5) is not given
    assert float(given.learning_rate) == 0.25


def test_the_usual_rate_is_that_of_the_optimizer():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    rates = [TrainingSetup(model, optimizer=o).usual_rate for o in (None, keras.optimizers.SGD(0.25), "sgd")]
    assert rates == [DEFAULT_RATE, 0.25, None]
    assert TrainingSetup(model, optimizer=keras.optimizers.SGD(SCHEDULE)).usual_rate is None


def test_scoring_the_float_model_leaves_the_switches_as_the_user_set_them():
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(16), target="onnxruntime")
    bench.calibrate()
    q_model = bench.q_model
    TrainingSetup(bench.model).compile(q_model)
    off = q_model.activation_quantizers[1]
    off.enabled.assign(value=False)
    evaluate(q_model, tiny_data(16), 8, quantized=False)
    assert [layer for layer in q_model.quantizing_layers if not bool(layer.enabled.numpy())] == [off]


def test_the_code_names_the_metric_objects_of_the_float_model():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    measured = [keras.metrics.MeanAbsoluteError(), "accuracy", keras.losses.mean_squared_error]
    model.compile("sgd", "mse", metrics=measured)
    lines = TrainingSetup(model).compile_code("model")
    note = "# metrics: the MeanAbsoluteError, accuracy, mean_squared_error of the bench; define it before these lines."
    assert note in lines
