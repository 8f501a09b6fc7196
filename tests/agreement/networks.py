"""The networks whose explanations are compared with ONNX Runtime: structure counts, so they are made thin."""

from __future__ import annotations

import keras
import numpy as np
from predecessor_networks import build_network, network_names
from runtimes_agreement import branching_net, sequence_net
from small_models import nested_net, residual_net
from target_models import dense_net, inception_net, zoo_net

SIZES = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71, "NASNetMobile": 64}
FIRST = (
    "ResNet50",
    "MobileNetV2",
    "EfficientNetB0",
    "InceptionV3",
    "DenseNet121",
    "ConvNeXtTiny",
    "MobileNetV3Small",
    "NASNetMobile",
    "Xception",
    "EfficientNetV2B0",
    "ResNet50V2",
    "VGG16",
    "InceptionResNetV2",
)
SMALL = {
    net.__name__: net
    for net in (residual_net, nested_net, zoo_net, inception_net, dense_net, branching_net, sequence_net)
}


def application_names() -> list[str]:
    """Return the models of keras.applications, the best known first."""
    every = [name for name, value in vars(keras.applications).items() if callable(value) and name[0].isupper()]
    return [*FIRST, *sorted(set(every) - set(FIRST))]


def build(name: str) -> keras.Model:
    """Return a network by name, with statistics in its batch normalizations.

    Args:
        name: An oracle network, a model of keras.applications, or one of `SMALL`.
    """
    keras.utils.set_random_seed(0)
    if name in SMALL:
        return fill(SMALL[name]())
    if name in network_names():
        return fill(build_network(name))
    size = SIZES.get(name, 32 if name.startswith(("VGG", "ResNet", "EfficientNet")) else 64)
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=8)
    return fill(thin(model, 8))


def thin(model: keras.Model, factor: int) -> keras.Model:
    """Return the network with its channels divided; the network itself where they do not divide.

    Args:
        model: A functional model.
        factor: By what to divide.
    """
    config = model.get_config()
    for layer in config["layers"]:
        _divide(layer, factor)
    try:
        thinner = type(model).from_config(config)
    except (ValueError, TypeError):
        thinner = model
    return thinner


def fill(model: keras.Model) -> keras.Model:
    """Give a model values as training would: biases of 0 vanish in an export, and so do trivial normalizations.

    Args:
        model: The model; its weights are changed.
    """
    generator = np.random.default_rng(0)
    for variable in model.variables:
        if variable.dtype == "float32" and len(variable.shape) < 2:
            variable.assign(generator.uniform(0.5, 1.5, variable.shape))
    return model


def _divide(layer: dict, factor: int) -> None:
    settings = layer["config"]
    for key in ("filters", "units", "projection_dim", "normalized_shape"):
        if isinstance(settings.get(key), int):
            settings[key] = max(1, settings[key] // factor)
    if layer["class_name"] == "Reshape" and settings["target_shape"][:2] == (1, 1):
        settings["target_shape"] = (1, 1, max(1, settings["target_shape"][2] // factor))
    layer["build_config"] = {}
    layer.pop("build_config")
