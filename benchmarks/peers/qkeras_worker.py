"""QKeras: `model_quantize` with 8-bit weights, biases and activations."""

from architectures import build
from qkeras.utils import model_quantize
from serve import Calls, beside_float, serve
from tensorflow import keras

_WEIGHT, _ACTIVATION = "quantized_bits(8,0,1,alpha='auto')", "quantized_relu(8)"
_CONFIG = {
    "QConv2D": {"kernel_quantizer": _WEIGHT, "bias_quantizer": "quantized_bits(8,0,1)"},
    "QDepthwiseConv2D": {"depthwise_quantizer": _WEIGHT, "bias_quantizer": "quantized_bits(8,0,1)"},
    "QDense": {"kernel_quantizer": _WEIGHT, "bias_quantizer": "quantized_bits(8,0,1)"},
    "QActivation": {"relu": _ACTIVATION},
}


def with_activations(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Return a copy of a layer; QKeras quantizes activation layers, not ReLU layers."""
    if isinstance(layer, keras.layers.ReLU):
        return keras.layers.Activation("relu", name=layer.name)
    return layer.__class__.from_config(layer.get_config())


def prepare(name: str, batch: int) -> tuple[Calls, Calls]:
    """Return what is measured."""
    source = keras.models.clone_model(build(keras, name), clone_function=with_activations)
    source.use_legacy_config = True  # QKeras renames classes in the JSON, whose newer form names modules too

    def convert() -> keras.Model:
        return model_quantize(source, _CONFIG, 8, transfer_weights=True)

    return beside_float(keras, source, batch, convert)


serve(prepare)
