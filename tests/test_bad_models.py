"""Models that cannot be quantized: each a named error with the fix in it."""

import inspect
import subprocess
import sys

import fresh_process
import keras
import numpy as np
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.deep_models import raised_recursion_limit
from qdq_workbench.errors import UnbuiltModelError, UnsupportedModelError


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, inputs):
        return self.dense(inputs)


class OwnCall(keras.Model):
    def call(self, inputs, training=None, mask=None):
        return super().call(inputs) * 2.0


@pytest.mark.parametrize("function", [qdq.build_graph, qdq.plan_placement, qdq.quantize_model, qdq.fold_batch_norm])
def test_models_without_a_graph(function):
    image = keras.Input((4,))
    with pytest.raises(UnsupportedModelError, match=r"keras.Model\(inputs, outputs\).*Subclassed"):
        function(Subclassed())
    with pytest.raises(UnsupportedModelError, match="OwnCall"):
        function(OwnCall(image, layers.Dense(2)(image)))
    with pytest.raises(UnbuiltModelError, match=r"model\.build"):
        function(keras.Sequential([layers.Dense(2)]))
    with pytest.raises(UnsupportedModelError, match="Keras 3 model"):
        function("model.keras")


def test_a_model_of_keras_2():
    module = type(sys)("tf_keras.src.engine.functional")
    functional = type("Functional", (), {"__module__": module.__name__})
    with pytest.raises(UnsupportedModelError, match=r"keras.models.load_model.*tf_keras"):
        qdq.quantize_model(functional())


@pytest.mark.parametrize(
    ("mode", "function"),
    [
        *(("int8", function) for function in (qdq.equalize_scales, qdq.fold_batch_norm)),
        *(("float8", function) for function in (qdq.build_graph, qdq.quantize_model, qdq.fold_batch_norm)),
    ],
)
def test_a_model_that_keras_has_quantized(mode, function):
    """Integers are read; what would lose them is refused, and so are float8 scales, which no pair stands for."""
    inside = keras.Sequential([keras.Input((3, 6)), layers.TimeDistributed(layers.Dense(8, name="a"), name="each")])
    image = keras.Input((3, 6))
    model = keras.Model(image, layers.ReLU()(inside(image)))
    inside.layers[0].layer.quantize(mode)
    with pytest.raises(UnsupportedModelError, match=r"'sequential.*/each'.*the float model.*(TimeDistributed|Dense)"):
        function(model)


def test_a_quantized_policy_without_weights_changes_nothing():
    image = keras.Input((4,))
    x = layers.ReLU(dtype="int8_from_float32", name="relu")(image)
    assert "relu" in qdq.build_graph(keras.Model(image, layers.Dense(2)(x))).layers


def test_a_functional_subclass_with_its_own_training_step_is_read():
    class Trained(keras.Model):
        def train_step(self, data):
            return {}

    image = keras.Input((4,), name="image")
    assert len(qdq.plan_placement(Trained(image, layers.Dense(2)(image))).tensors) == 2


def test_another_backend(monkeypatch):
    image = keras.Input((4,))
    model = keras.Model(image, layers.Dense(2)(image))
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(UnsupportedModelError, match=r"KERAS_BACKEND=\"tensorflow\".*Received: backend='jax'"):
        qdq.quantize_model(model)


def test_an_opaque_layer_stays_float_with_a_reason():
    class Own(layers.Layer):
        def call(self, inputs):
            return inputs * 2.0

    image = keras.Input((4,), name="image")
    hidden = layers.Lambda(lambda x: x + 1.0, name="lambda")(Own(name="own")(image))
    plan = qdq.plan_placement(keras.Model(image, layers.Dense(2, name="head")(hidden)))
    assert "user's own" in plan.for_layer("own").reason
    assert "Lambda" in plan.for_layer("lambda").reason
    assert plan.for_layer("head").quantize_input


IMPORTS = (
    "import qdq_workbench, keras",
    "from qdq_workbench import plan_placement; import keras",
    "from qdq_workbench import export_onnx; import keras",
    "import qdq_workbench, tensorflow, keras",  # TensorFlow asks for Keras's spec and does not load it
    "import qdq_workbench, importlib.util; importlib.util.find_spec('keras'); import qdq_workbench.cases, keras",
)
# What TensorFlow and Keras import takes a third of the time of their import; none of these imports them.
LIBRARIES = ("h5py", "matplotlib.pyplot", "optree", "rich", "scipy.stats", "sklearn.base")


@pytest.fixture(scope="module")
def nothing_imported():
    with fresh_process.server(*LIBRARIES) as running:
        yield running


def loads_a_saved_model(process, imports, folder):
    """Look whether a process loads a quantized model after some imports."""
    image = keras.Input((4,), name="image")
    q_model = qdq.quantize_model(keras.Model(image, layers.Dense(2)(image)))
    q_model.save(folder / "q.keras")
    load = f"print(type(keras.models.load_model({str(folder / 'q.keras')!r})).__name__)"
    done = process.run(f"{imports}\nassert 'qdq_' not in str(sys.meta_path)\n{load}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == "QuantizedModel"


@pytest.mark.parametrize("imports", IMPORTS)
def test_saved_models_load_after_importing_the_package_alone(imports, nothing_imported, tmp_path):
    untouched = "import sys; assert not {'keras', 'tensorflow', 'qdq_workbench'} & sys.modules.keys()"
    loads_a_saved_model(nothing_imported, f"{untouched}\n{imports}", tmp_path)


def test_saved_models_load_where_keras_was_imported_before_the_package(fresh, tmp_path):
    behind_keras = "import sys; assert 'keras' in sys.modules and 'qdq_workbench' not in sys.modules"
    loads_a_saved_model(fresh, f"{behind_keras}\nimport keras, qdq_workbench", tmp_path)


def test_the_package_is_imported_where_keras_is_blocked():
    code = "import sys; sys.modules['keras'] = None; import qdq_workbench.errors"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def deep_model(operations: int) -> keras.Model:
    """Return a model whose depth Keras sees only when its nested models are laid flat."""
    inputs = y = keras.Input((4,))
    for _ in range(operations // 3):
        y = layers.ReLU()(y)
    inner = keras.Model(inputs, y)
    image = x = keras.Input((4,), name="image")
    for _ in range(3):
        x = layers.Dense(4)(inner(x))
    return keras.Model(image, x)


@pytest.fixture
def recursion_limit():
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(usual)


@pytest.mark.usefixtures("recursion_limit")
def test_models_deeper_than_python_recurses_are_quantized_and_the_limit_stays(tmp_path):
    limit = len(inspect.stack(0)) + 300  # Keras needs one call per operation, and some 150 of its own
    sys.setrecursionlimit(limit)
    model = deep_model(300)
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, np.ones((2, 4), np.float32), verbose=False)
    q_model.save(tmp_path / "q.keras")
    for copy in (keras.saving.load_model(tmp_path / "q.keras"), keras.models.clone_model(q_model)):
        assert len(copy.operations) == len(q_model.operations) > 100
    assert len(qdq.strip(q_model).operations) > 100
    assert sys.getrecursionlimit() == limit
    with pytest.raises(RecursionError):
        keras.Model(q_model.inputs, q_model.outputs)


@pytest.mark.usefixtures("recursion_limit")
def test_outputs_that_are_no_symbolic_tensors_hide_no_others():
    deep = layers.ReLU()(layers.ReLU()(keras.Input((4,))))
    for beside in (np.zeros(4), keras.KerasTensor((None, 4))):  # Keras refuses them, with a better message
        with raised_recursion_limit([beside, deep, beside]):
            assert sys.getrecursionlimit() == 1003


@pytest.mark.usefixtures("recursion_limit")
def test_the_recursion_limit_is_the_users_again_when_the_last_of_several_threads_is_done():
    """It belongs to the process: one that leaves first must not take it from the others."""
    shallow = layers.ReLU()(keras.Input((4,)))
    deep = layers.ReLU()(shallow)
    with pytest.raises(KeyError, match="planted"), raised_recursion_limit(shallow):
        with raised_recursion_limit(deep):
            with raised_recursion_limit(shallow):
                pass
            assert sys.getrecursionlimit() == 1003
        raise KeyError("planted")
    assert sys.getrecursionlimit() == 1000
    first, second = raised_recursion_limit(shallow), raised_recursion_limit(shallow)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getrecursionlimit() == 1002
    second.__exit__(None, None, None)
    assert sys.getrecursionlimit() == 1000
