"""`fold_batch_norm`: the float model without the batch normalizations that a layer can absorb."""

from __future__ import annotations

import keras

from qdq_workbench.conversion.engine.folding import FoldingRebuilder, lossless_folds
from qdq_workbench.graph_builder import bind_graph


def fold_batch_norm(model: keras.Model) -> keras.Model:
    """Return a copy of a float model whose batch normalizations are folded into the layers before them.

    A BatchNormalization is folded into a convolution of any kind or a Dense before it, if that has no activation and
    nothing else reads the tensor between the two; for a shared layer, if that is so at every call. Others stay, and so
    do those where one of the two has an activity regularizer, which would see another tensor: only an exported file is
    folded there. For training keep the batch normalizations in place; fold for export (quantization-aware training of
    a folded model loses accuracy).

    Args:
        model: A built functional or sequential Keras model; it is only read. Nested models are flattened.

    Returns:
        The folded model, not compiled; it computes the same function at inference, up to float rounding.

    Raises:
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> hidden = keras.layers.Conv2D(4, 3, use_bias=False, name="conv")(image)
        >>> model = keras.Model(image, keras.layers.BatchNormalization(name="norm")(hidden))
        >>> [layer.name for layer in fold_batch_norm(model).layers]
        ['image', 'conv']
    """
    bound = bind_graph(model)
    builder = FoldingRebuilder(bound, lossless_folds(bound))
    return builder.rebuilt(model.name)
