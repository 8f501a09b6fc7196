import keras
import numpy as np
import pytest
from keras import layers, ops

from qdq_workbench.conversion.engine.rebuild import (
    Rebuilder,
    clone_operation,
    copy_variables,
    keras_name,
    model_name,
    unique_names,
    with_policy,
)
from qdq_workbench.errors import UnsupportedModelError
from qdq_workbench.graph_builder import bind_graph


@keras.saving.register_keras_serializable(package="rebuild_test")
class RunningSum(layers.Layer):
    """Leaves its shape to Keras, which calls it with what the symbolic tensor says it is."""

    def call(self, inputs):
        return ops.cumsum(inputs, axis=-1)


class TestNames:
    @pytest.mark.parametrize(
        ("path", "name"), [("a/b#2", "a.b.2"), ("a b:0", "a_b_0"), ("a-b_c.d", "a-b_c.d"), ("größe", "gr__e"), ("", "")]
    )
    def test_a_path_becomes_a_name_that_keras_takes(self, path, name):
        assert keras_name(path) == name

    @pytest.mark.parametrize(
        ("name", "safe"),
        [
            ("net", "net"),
            (".net/a\\b-1", ".net/a\\b-1"),
            ("_net", "model_net"),
            ("-net", "model-net"),
            ("a b", "a_b"),
            ("", "model"),
        ],
    )
    def test_a_model_has_a_name_that_tensorflow_takes(self, name, safe):
        assert model_name(name) == safe

    def test_names_that_are_taken_get_a_number(self):
        found = unique_names({1: "a", 2: "b", 3: "a", 4: "a"})
        assert (found[1], found[2]) == ("a", "b")
        assert len(set(found.values())) == 4
        assert all(name.startswith("a") for name in (found[3], found[4]))


class NoName(layers.Layer):
    """Its configuration holds no name."""

    def __init__(self, units=3):
        super().__init__()
        self.units = units

    def get_config(self):
        return {"units": self.units}


class NoConfig(layers.Layer):
    """No attribute tells what the constructor was called with."""

    def __init__(self, needed):
        super().__init__()
        self.kept = needed

    def get_config(self):
        return {"name": self.name}


class TestClones:
    def test_a_copy_has_its_own_name_and_the_flag_of_the_layer(self):
        layer = layers.Dense(2, activation="relu", name="dense")
        layer.trainable = False
        clone = clone_operation(layer, "copy")
        assert (clone.name, clone.trainable, clone.units, clone.built) == ("copy", False, 2, False)
        assert layer.name == "dense"

    def test_a_layer_whose_configuration_lacks_its_name_takes_one(self):
        layer = NoName(5)
        layer.trainable = False
        clone = clone_operation(layer, "copy")
        assert (clone.name, clone.units, clone.trainable) == ("copy", 5, False)

    def test_functions_that_no_configuration_expresses_are_shared(self):
        def bend(x):
            return x * x

        assert clone_operation(layers.Dense(2, activation=bend), "copy").activation is bend
        function = lambda x, factor=1: x * factor  # noqa: E731 - as in Lambda layers
        source = layers.Lambda(function, output_shape=(3,), arguments={"factor": 2}, name="scaled", dtype="float16")
        source.trainable = False
        clone = clone_operation(source, "copy")
        assert (clone.function, clone._output_shape, clone.arguments) == (function, (3,), {"factor": 2})
        assert (clone.name, clone.dtype_policy.name, clone.trainable) == ("copy", "float16", False)

    def test_an_operation_has_the_name_too(self):
        operation = ops.multiply(keras.Input((2,)), 3.0)._keras_history.operation
        clone = clone_operation(operation, "copy")
        assert (type(clone), clone.name) == (type(operation), "copy")
        assert clone is not operation

    def test_what_cannot_be_copied_is_named_with_the_way_out(self):
        with pytest.raises(
            UnsupportedModelError, match=r"'mine' cannot be copied: .*get_config.*of class NoConfig"
        ) as caught:
            clone_operation(_renamed(NoConfig(3), "mine"), "copy")
        assert caught.value.__cause__ is not None

    def test_in_float32(self):
        layer = layers.Dense(2, dtype="mixed_float16")
        assert clone_operation(layer, "copy").compute_dtype == "float16"
        assert clone_operation(layer, "copy", float32=True).compute_dtype == "float32"

    def test_a_dtype_that_stands_for_the_variables_becomes_the_policy(self):
        layer = layers.Dense(2, dtype="mixed_float16")
        assert with_policy(layer, {"dtype": "float32", "a": 1})["dtype"]["config"] == {"name": "mixed_float16"}
        assert with_policy(layer, {"dtype": "float16"}) == {"dtype": "float16"}
        assert with_policy(layer, {"a": 1}) == {"a": 1}
        inside = layers.SpatialDropout1D(0.2, dtype="mixed_float16")
        wrapper = layers.TimeDistributed(inside, dtype="mixed_float16")
        assert (
            with_policy(wrapper, wrapper.get_config())["layer"]["config"]["dtype"]["config"]["name"] == "mixed_float16"
        )


def _renamed(layer, name):
    layer.name = name
    return layer


def built(layer, *shape):
    layer.build((None, *shape))
    return layer


class TestVariables:
    def test_values_and_flags_are_copied(self):
        source, clone = (built(layers.Dense(2), 3) for _ in range(2))
        source.trainable = False
        copy_variables(source, clone)
        np.testing.assert_array_equal(clone.kernel, source.kernel)
        assert not clone.trainable

    def test_flags_alone(self):
        source, clone = (built(layers.Dense(2), 3) for _ in range(2))
        source.trainable = False
        before = np.asarray(clone.kernel)
        copy_variables(source, clone, values=False)
        np.testing.assert_array_equal(clone.kernel, before)
        assert not clone.trainable

    def test_layers_inside_keep_flags_of_their_own(self):
        source, clone = (built(layers.TimeDistributed(layers.Dense(2)), 4, 3) for _ in range(2))
        source.layer.trainable = False
        copy_variables(source, clone)
        assert (clone.trainable, clone.layer.trainable) == (True, False)

    def test_a_normalization_computes_with_the_copied_statistics(self):
        source, clone = (layers.Normalization() for _ in range(2))
        source.adapt(np.float32([[1.0], [5.0]]))
        clone.build((None, 1))
        copy_variables(source, clone)
        np.testing.assert_allclose(clone(np.float32([[5.0]])), [[1.0]], rtol=1e-5)

    @pytest.mark.parametrize("change", ["more", "other"])
    def test_variables_that_the_configuration_does_not_make_are_refused(self, change):
        source, clone = built(layers.Dense(2, name="dense"), 3), built(layers.Dense(2), 3 if change == "more" else 4)
        if change == "more":
            source._tracker.unlock()
            source.lora = source.add_weight(name="lora", shape=(2,))
        with pytest.raises(UnsupportedModelError, match=r"'dense' cannot be copied.*merge_lora\(model\)") as caught:
            copy_variables(source, clone)
        assert ("dense/lora" in str(caught.value)) is (change == "more")


@pytest.fixture(scope="module")
def net():
    left, right = keras.Input((4,), name="left"), keras.Input((4,), dtype="float16", name="right")
    shared = layers.Dense(3, name="shared")
    outputs = {"sum": shared(left) + shared(right) * 2.0, "one": [shared(left)]}
    return keras.Model({"left": left, "right": right}, outputs, name="net")


class TestRebuilding:
    def test_the_copy_computes_the_same_in_the_same_structure(self, net):
        copy = Rebuilder(bind_graph(net)).rebuilt("copy")
        data = {"left": np.ones((2, 4), np.float32), "right": np.ones((2, 4), np.float16)}
        ours, theirs = copy(data), net(data)
        assert list(ours) == ["sum", "one"]
        np.testing.assert_array_equal(ours["sum"], theirs["sum"])
        np.testing.assert_array_equal(ours["one"][0], theirs["one"][0])
        assert copy.name == "copy"
        assert copy.get_layer("shared") is not net.get_layer("shared")
        assert len([layer for layer in copy.layers if isinstance(layer, layers.Dense)]) == 1

    def test_inputs_keep_their_dtype_unless_all_is_float32(self, net):
        class InFloat32(Rebuilder):
            float32 = True

        for rebuilder, expected in ((Rebuilder, "float16"), (InFloat32, "float32")):
            copy = rebuilder(bind_graph(net)).rebuilt("copy")
            assert copy.input["right"].dtype == expected

    def test_a_name_is_free_once(self, net):
        rebuilder = Rebuilder(bind_graph(net))
        found = [rebuilder.free_name("shared"), rebuilder.free_name("new"), rebuilder.free_name("new")]
        assert found[1] == "new"
        assert len({*found, *rebuilder.names.values()}) == len(rebuilder.names) + 3

    def test_clones_are_known_by_their_sources(self, net):
        rebuilder = Rebuilder(bind_graph(net))
        rebuilder.run()
        assert rebuilder.counterparts()[id(net.get_layer("shared"))] is rebuilder.clones["shared"]

    def test_an_activation_that_was_split_off_is_called_behind_its_layer(self, net):
        rebuilder = Rebuilder(bind_graph(net))
        rebuilder.behind["shared"] = layers.ReLU(max_value=0.0, name="nothing")
        copy = rebuilder.rebuilt("copy")
        found = copy({"left": np.ones((1, 4), np.float32), "right": np.ones((1, 4), np.float16)})
        np.testing.assert_array_equal(found["sum"], np.zeros((1, 3)))

    def test_paths_that_become_one_name_stay_apart(self):
        x = keras.Input((2,), name="x")
        inner = keras.Sequential([keras.Input((2,)), layers.Dense(2, name="b")], name="a")
        model = keras.Model(x, layers.Dense(2, name="a.b")(inner(x)))
        copy = Rebuilder(bind_graph(model)).rebuilt("copy")
        np.testing.assert_array_equal(copy(np.ones((1, 2))), model(np.ones((1, 2))))

    def test_a_product_with_a_constant_is_dense_for_a_layer_that_reads_dense_tensors(self):
        x, inside = keras.Input((4,), name="x"), keras.Input((4,), name="inside")
        part = keras.Model(inside, RunningSum(name="sum")(inside), name="part")
        product = x * 2.0
        copy = Rebuilder(bind_graph(keras.Model(x, part(product)))).rebuilt("copy")
        np.testing.assert_array_equal(copy(np.ones((1, 4))), [[2.0, 4.0, 6.0, 8.0]])
