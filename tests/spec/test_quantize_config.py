"""Configs in specs: plain settings and users' classes through YAML, JSON and back."""

import keras
import pytest

from qdq_workbench import LayerQuantizeConfig, QuantizationSpec, QuantizeConfig
from qdq_workbench.errors import SpecError

SETTINGS = LayerQuantizeConfig(weight={"num_bits": 4, "quantizer": "lsq"}, output={})


@keras.saving.register_keras_serializable(package="tests")
class Named(QuantizeConfig):
    def __init__(self, num_bits):
        self.num_bits = num_bits

    def __eq__(self, other):
        return isinstance(other, Named) and other.num_bits == self.num_bits

    __hash__ = None

    def get_weights_and_quantizers(self, layer):
        return []

    def get_activations_and_quantizers(self, layer):
        return []

    def set_quantize_weights(self, layer, quantize_weights):
        pass

    def set_quantize_activations(self, layer, quantize_activations):
        pass

    def get_output_quantizers(self, layer):
        return []

    def get_config(self):
        return {"num_bits": self.num_bits}


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_configs_survive_files(tmp_path, suffix):
    spec = QuantizationSpec()
    spec.add("conv", quantize_config=SETTINGS)
    spec.add(["a", "b"], quantize_config=[Named(5), None])
    path = tmp_path / f"spec.{suffix}"
    spec.save(path)
    loaded = QuantizationSpec.load(path)
    assert loaded == spec
    assert spec.to_dict()["layers"][0]["quantize_config"] == {
        "weight": {"num_bits": 4, "quantizer": "lsq"},
        "output": {},
    }


def test_settings_can_be_written_by_hand(tmp_path):
    (tmp_path / "spec.yaml").write_text("layers:\n- name: conv\n  quantize_config:\n    weight: {num_bits: 4}\n")
    entry = QuantizationSpec.load(tmp_path / "spec.yaml").layers[0]
    assert entry.quantize_config == LayerQuantizeConfig(weight={"num_bits": 4})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"weights": {"num_bits": 4}}, "Did you mean 'weight'"),
        ({"weight": {"num_bits": 99}}, "from 2 to 16"),
        ("4 bits", "mapping"),
        ({"class_name": "Nowhere", "config": {}, "module": None, "registered_name": "Nowhere"}, "not known here"),
        ({"class_name": "Nowhere", "config": {}, "module": "qdq_workbench.nowhere"}, "not known here"),
    ],
)
def test_damaged_files_are_explained(config, message):
    with pytest.raises(SpecError, match=message):
        QuantizationSpec.from_dict({"layers": [{"name": "conv", "quantize_config": config}]})


@pytest.mark.parametrize("config", ["4 bits", LayerQuantizeConfig, Named, {"weight": {}}])
def test_other_objects_are_refused(config):
    with pytest.raises(SpecError, match="quantize_config must be"):
        QuantizationSpec().add("conv", quantize_config=config)


def test_the_six_methods_are_required():
    with pytest.raises(TypeError, match="abstract"):
        QuantizeConfig()
    assert Named.from_config({"num_bits": 3}).num_bits == 3


def test_settings_are_values():
    given = {"num_bits": 4}
    config = LayerQuantizeConfig(weight=given)
    given["num_bits"] = 5
    assert config.weight["num_bits"] == 4
    assert hash(config) == hash(LayerQuantizeConfig(weight={"num_bits": 4}))
    assert config != LayerQuantizeConfig(activation={"num_bits": 4})


def test_weights_may_have_settings_each():
    weight = {"depthwise_kernel": {"num_bits": 4}, "pointwise_kernel": {}}
    config = LayerQuantizeConfig(weight=weight)
    assert LayerQuantizeConfig.from_config(config.get_config()) == config
    assert hash(LayerQuantizeConfig.from_config(config.get_config())) == hash(config)
    weight["depthwise_kernel"]["num_bits"] = 5
    assert config.weight["depthwise_kernel"] == {"num_bits": 4}
    config.get_config()["weight"]["depthwise_kernel"]["num_bits"] = 5
    assert config.weight["depthwise_kernel"] == {"num_bits": 4}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": {"kernel": {"bits": 4}}}, "weight 'kernel' has a setting that no quantizer knows"),
        ({"weight": {"kernel": {}, "num_bits": 4}}, "has a setting that no quantizer knows"),
        ({"weight": {"axis": 1.5}}, "axis must be a whole number"),
        ({"activation": {"axis": 1}}, "leave per_axis and axis out"),
        ({"output": {"kernel": {}}}, "has a setting that no quantizer knows"),
        ({"weight": {"symmetric": 1}}, "symmetric"),
        ({"activation": {"narrow_range": "yes"}}, "narrow_range"),
        ({"activation": {"quantizer": "moving_average", "momentum": "slow"}}, "momentum must be a number"),
        ({"weight": {"axis": 0, "block_size": 1}}, "block_size"),
        ({"weight": {"axis": 0, "block_size": True}}, "block_size"),
        ({"weight": {"axis": 0, "block_size": -4}}, "block_size"),
        *(
            (
                {"activation": {"quantizer": "fixed", "init_min": low, "init_max": high}},
                "finite numbers with init_min < ",
            )
            for low, high in [(1.0, -1.0), (1.0, 1.0), (float("-inf"), 1.0), (0.0, float("inf"))]
        ),
    ],
)
def test_settings_that_are_none_are_named(settings, message):
    with pytest.raises(SpecError, match=message):
        LayerQuantizeConfig(**settings)


def test_equal_settings_have_one_hash():
    one = LayerQuantizeConfig(weight={"num_bits": 4, "per_axis": True}, activation={"num_bits": 8})
    other = LayerQuantizeConfig(activation={"num_bits": 8}, weight={"per_axis": True, "num_bits": 4})
    assert one == other
    assert len({one, other}) == 1
    assert hash(one) != hash(LayerQuantizeConfig(weight={"num_bits": 5, "per_axis": True}))
