"""The steps a random model is made of; each writes a line or more, or nothing where no tensor fits."""

from fuzz.operations import merge, operation_of_one, operation_of_two
from fuzz.sequences import attention, distributed, plain_attention, recurrent, steps_of_images
from fuzz.writing import is_float, layer, rank

# Without "glu": it halves the last axis, and Keras's Activation layer says that it does not.
ACTIVATIONS = (
    "relu", "relu6", "sigmoid", "tanh", "silu", "gelu", "elu", "selu", "leaky_relu", "softplus", "softsign", "softmax",
    "hard_sigmoid", "hard_silu", "mish", "exponential", "linear", "log_softmax", "celu", "hard_tanh",
    "hard_shrink", "soft_shrink", "tanh_shrink", "squareplus", "log_sigmoid", "sparse_plus", "relu6",
)  # fmt: skip


def add_step(writer):
    """Write one random step."""
    writer.pick(HARD_STEPS if writer.hard else STEPS)(writer)


def convolution(writer):
    dimension = writer.pick([2, 2, 2, 1, 3])
    tensor = writer.choose(rank(dimension + 2))
    if tensor is None:
        return
    layout, axis = writer.pick([*[("last", -1)] * 4, ("first", 1)])
    channels = writer.tensors[tensor].shape[axis]
    kind = writer.pick(["Conv", "Conv", "DepthwiseConv", "SeparableConv", "Transpose"])
    kernel, padding = writer.number(1, 3), writer.pick(["same", "valid"])
    strides, dilation = writer.pick([(1, 1), (2, 1), (1, 2)])
    # Where a dilated kernel is larger than its input, TensorFlow (2.21) returns memory that nobody has written, other
    # values in every call, and Keras refuses such a layer only if it knows the sizes.
    if dilation > 1 and None in writer.tensors[tensor].shape[1:]:
        padding = "same"
    filters = writer.pick([4, 2, 3, 6])
    bias = writer.flag()
    if (
        layout == "first"
    ):  # Keras adds the bias along the last axis where that has as many elements as there are filters
        filters, bias = 11, bias and kind != "DepthwiseConv"
    common = (
        f"{kernel}, strides={strides}, dilation_rate={dilation}, padding={padding!r}, "
        f"use_bias={bias}, activation={writer.pick([None, None, 'relu', *ACTIVATIONS[:8]])!r}"
    )
    common += ", data_format='channels_first'" if layout == "first" else ""
    if kind == "Conv":
        groups = writer.pick([1, 1, *(g for g in (2, 3, 4) if (channels or 1) % g == 0 and filters % g == 0)])
        layer(writer, f"layers.Conv{dimension}D({filters}, {common}, groups={groups})", tensor)
    elif kind == "Transpose":
        layer(writer, f"layers.Conv{dimension}DTranspose({filters}, {common})", tensor)
    elif dimension < 3:
        multiplier = f"depth_multiplier={writer.pick([1, 1, 2])}"
        first = f"{filters}, " if kind == "SeparableConv" else ""
        layer(writer, f"layers.{kind}{dimension}D({first}{common}, {multiplier})", tensor)


def inserted_axis(writer):
    """A convolution behind an axis that was inserted; `specs` leaves it in float now and then."""
    number = writer.pick([3, 4])
    tensor = writer.choose(rank(number))
    if tensor is None:
        return
    wide = writer.compute(f"ops.expand_dims({tensor}, {writer.number(1, number)})")
    if wide is not None:
        layer(writer, f"layers.Conv{number - 1}D({writer.number(1, 3)}, {writer.number(1, 2)}, padding='same')", wide)


def dense(writer):
    tensor = writer.choose(is_float)
    units, activation = writer.number(1, 5), writer.pick([None, *ACTIVATIONS[:8]])
    bias = writer.flag()
    layer(writer, f"layers.Dense({units}, use_bias={bias}, activation={activation!r})", tensor)


def einsum_dense(writer):
    number = writer.pick([3, 4, 2])
    tensor = writer.choose(rank(number))
    if tensor is None:
        return
    equation, shape, axes = {
        2: writer.pick([("ab,bc->ac", (3,), "c"), ("ab,bcd->acd", (2, 3), "cd")]),
        3: writer.pick([("abc,cd->abd", (None, 3), "d"), ("abc,cde->abde", (None, 2, 3), "de")]),
        4: ("abcd,de->abce", (None, None, 3), "e"),
    }[number]
    layer(writer, f"layers.EinsumDense({equation!r}, output_shape={shape}, bias_axes={axes!r})", tensor)


def embedding(writer):
    tensor = writer.choose(lambda t: "int" in t.dtype)
    if tensor is not None and writer.pick([False, False, False, True]):
        # Keras declares another shape than it returns where the other modes read more than two axes.
        mode = writer.pick(["multi_hot", "one_hot", "count"] if len(writer.tensors[tensor].shape) == 2 else ["one_hot"])
        layer(writer, f"layers.CategoryEncoding(num_tokens=10, output_mode={mode!r})", tensor)
        return
    layer(writer, f"layers.Embedding(10, {writer.number(1, 4)}, mask_zero={writer.flag()})", tensor)


def normalization(writer):
    kind = writer.pick(
        [
            f"BatchNormalization(scale={writer.flag()}, center={writer.flag()})",
            "GroupNormalization(groups=-1)",
            "LayerNormalization(axis=[-2, -1])",
            "BatchNormalization()",
            "BatchNormalization(axis=1)",
            "LayerNormalization()",
            "GroupNormalization(groups=1)",
            "RMSNormalization()",
            "UnitNormalization()",
            "Rescaling(0.5, offset=-0.2)",
            "Normalization(mean=0.3, variance=2.0)",
        ]
    )
    layer(writer, f"layers.{kind}", writer.choose(is_float))


def pooling(writer):
    dimension = writer.pick([2, 2, 1, 3])
    kind = writer.pick(["Max", "Average", "GlobalMax", "GlobalAverage"])
    if kind.startswith("Global"):
        settings = f"keepdims={writer.flag()}"
    else:
        settings = f"{writer.number(2, 3)}, strides={writer.number(1, 2)}, padding={writer.pick(['valid', 'same'])!r}"
    settings += writer.pick(["", "", "", ", data_format='channels_first'"])
    layer(writer, f"layers.{kind}Pooling{dimension}D({settings})", writer.choose(rank(dimension + 2)))


def resizing(writer):
    choices = [
        (4, "UpSampling2D(2)"),
        (4, "UpSampling2D(2, data_format='channels_first')"),
        (4, "ZeroPadding2D(1, data_format='channels_first')"),
        (4, "UpSampling2D((1, 3), interpolation='bilinear')"),
        (4, f"Resizing({writer.number(3, 9)}, 5, interpolation={writer.pick(['bilinear', 'nearest'])!r})"),
        (4, "CenterCrop(3, 4)"),
        (4, "ZeroPadding2D(((1, 0), (0, 2)))"),
        (4, "Cropping2D(1)"),
        (3, "UpSampling1D(2)"),
        (3, "ZeroPadding1D((2, 1))"),
        (3, "Cropping1D((1, 0))"),
        (5, "UpSampling3D((1, 2, 1))"),
        (5, "ZeroPadding3D(1)"),
        (5, "Cropping3D((0, 1, 1))"),
    ]
    number, kind = writer.pick(choices)
    layer(writer, f"layers.{kind}", writer.choose(rank(number)))


def activation(writer):
    kind = writer.pick(
        [
            "ReLU()",
            "ReLU(max_value=6.0)",
            "ReLU(max_value=1.0, negative_slope=0.1, threshold=0.2)",
            "LeakyReLU()",
            "PReLU()",
            "PReLU(shared_axes=[1, 2])",
            "ELU(alpha=0.5)",
            "Softmax()",
            f"Softmax(axis={writer.pick([1, -1, -2])})",
            *(f"Activation({name!r})" for name in ACTIVATIONS),
        ]
    )
    layer(writer, f"layers.{kind}", writer.choose(is_float))


def regularization(writer):
    kind = writer.pick(
        [
            "Dropout(0.2)",
            "SpatialDropout2D(0.2)",
            "GaussianDropout(0.1)",
            "GaussianNoise(0.1)",
            "AlphaDropout(0.1)",
            "ActivityRegularization(l2=0.01)",
            "Identity()",
            "RandomFlip('horizontal')",
            "Masking(0.0)",
        ]
    )
    # Keras infers a shape for any tensor, and then flips images and batches of images only.
    fits = is_image if kind.startswith("RandomFlip") else is_float
    layer(writer, f"layers.{kind}", writer.choose(fits))


def is_image(tensor):
    """Whether Keras takes a tensor for an image, or for a batch of images."""
    return is_float(tensor) and len(tensor.shape) in (3, 4)


def reshaping(writer):
    tensor = writer.choose()
    if tensor is None:
        return
    number = len(writer.tensors[tensor].shape)
    order = tuple(range(number - 1, 0, -1))
    kind = writer.pick(["Flatten()", "Reshape((-1, 1))", "Reshape((1, 1, -1))", f"Permute({order})", "RepeatVector(3)"])
    layer(writer, f"layers.{kind}", tensor)


def shared(writer):
    """Call a layer or a nested model once more, on a tensor of the shape that it knows."""
    if not writer.callables:
        return
    name, argument = writer.pick(writer.callables[::-1])
    if argument.startswith("["):
        writer.compute(f"{name}({argument})")
        return
    first = writer.tensors.get(argument)
    if first is None:
        return
    shape = tuple(first.shape)
    tensor = writer.choose(lambda t: t.dtype == first.dtype and tuple(t.shape) == shape)
    writer.compute(f"{name}({tensor})")


def sequential(writer):
    tensor = writer.choose(is_float)
    if tensor is None:
        return
    name = writer.fresh("seq")
    number = len(writer.tensors[tensor].shape)
    convolutions = {4: "Conv2D", 3: "Conv1D", 5: "Conv3D"}
    parts = [f"layers.{convolutions[number]}(3, 2, padding='same')" if number in convolutions else "layers.Dense(3)"]
    parts += [p for p in ("layers.BatchNormalization()", "layers.ReLU()", "layers.Dense(2)") if writer.flag()]
    if writer.flag():
        parts = [f"keras.Input({tuple(writer.tensors[tensor].shape[1:])})", *parts]
    if not writer.run(f"{name} = keras.Sequential([{', '.join(parts)}], name={name!r})"):
        return
    if writer.compute(f"{name}({tensor}{writer.pick(['', ', training=False'])})") is None:
        writer.lines.pop()
    else:
        writer.callables.append((name, tensor))


def nested(writer):
    """Write a model inside the model, from one or two tensors, with one or two outputs."""
    if writer.depth >= 2:
        return
    given = [writer.choose()]
    if writer.flag():
        given.append(writer.choose())
    name = writer.fresh("part")
    inner = type(writer)(writer._draw, parent=writer)
    for tensor in given:
        inner.add_input(like=writer.tensors[tensor])
    for _ in range(writer.number(1, 4)):
        add_step(inner)
    taken = list(inner.inputs)
    inner.finish(name)
    kept = [tensor for tensor, x in zip(given, taken, strict=True) if x in inner.inputs]
    writer.lines.extend(inner.lines)
    model = writer.namespace[name]
    argument = kept[0] if not isinstance(model._inputs_struct, (list, dict)) else "[" + ", ".join(kept) + "]"
    assert writer.compute(f"{name}({argument})") is not None, (name, argument, inner.lines)
    writer.callables.append((name, argument))


STEPS = (
    convolution, convolution, convolution, dense, activation, normalization, normalization, pooling, merge, merge,
    operation_of_one, operation_of_one, operation_of_two, shared, nested, sequential, resizing, reshaping,
    regularization, einsum_dense, embedding, recurrent, attention, distributed, plain_attention, steps_of_images,
)  # fmt: skip
HARD_STEPS = (*STEPS, inserted_axis)
