"""Steps that merge tensors, as layers and as operations."""

from fuzz.writing import is_float, layer


def merge(writer):
    tensor = writer.choose(is_float)
    if tensor is None:
        return
    shape = tuple(writer.tensors[tensor].shape)
    others = [tensor]
    while len(others) < 3 and writer.pick([True, True, False]):
        others.append(writer.choose(lambda t: is_float(t) and _may_merge(tuple(t.shape), shape)))
    kinds = ["Add()", "Concatenate()", "Multiply()", "Subtract()", "Average()", "Maximum()", "Minimum()"]
    kind = writer.pick([*kinds, "Concatenate(axis=1)", "Dot(axes=-1)"])
    if len(shape) > 1 and kind not in ("Concatenate()", "Concatenate(axis=1)", "Dot(axes=-1)"):
        others += writer.pick([[], [], [], *([constant] for constant in _constants(shape))])
    layer(writer, f"layers.{kind}", "[" + ", ".join(others) + "]")


def _constants(shape):
    """Constants of one value, and of one per channel."""
    few, channels = [1] * (len(shape) - 1), shape[-1] or 1
    return f"ops.full({[*few, 1]}, -0.25)", f"ops.linspace(ops.full({few}, 0.5), ops.ones({few}), {channels}, axis=-1)"


def _may_merge(shape, other):
    return shape == other or (len(shape) == len(other) and _fit(shape, other))


def _fit(shape, other):
    """Whether two shapes of one rank broadcast."""
    return all(1 in pair or pair[0] == pair[1] for pair in zip(shape, other, strict=True))


def operation_of_one(writer):
    tensor = writer.choose(is_float)
    if tensor is None:
        return
    number = len(writer.tensors[tensor].shape)
    axis = writer.number(1, max(1, number - 1))
    expression = writer.pick(
        [
            "ops.relu({})",
            "{} * 0.5",
            "1.0 - {}",
            "-{}",
            "{} + 0.25",
            "{} / 2.0",
            "ops.sigmoid({})",
            "ops.tanh({})",
            "ops.gelu({})",
            "ops.silu({})",
            "ops.leaky_relu({}, 0.3)",
            "ops.softmax({})",
            "ops.abs({})",
            "ops.square({})",
            "ops.sqrt(ops.abs({}) + 0.1)",
            "ops.clip({}, -0.5, 0.75)",
            "ops.exp(-ops.abs({}))",
            "ops.maximum({}, 0.1)",
            "ops.mean({}, axis=AXIS)",
            "ops.mean({}, axis=AXIS, keepdims=True)",
            "ops.max({}, axis=AXIS)",
            "ops.sum({}, axis=AXIS, keepdims=True)",
            "ops.expand_dims({}, AXIS)",
            "ops.squeeze({}, AXIS)",
            "ops.flip({}, AXIS)",
            "ops.split({}, 2, axis=AXIS)",
            "ops.unstack({}, axis=AXIS)",
            "ops.repeat({}, 2, axis=AXIS)",
            "ops.transpose({}, ORDER)",
            "ops.reshape({}, (-1, FLAT))",
            "ops.pad({}, PADS)",
            "ops.normalize({})",
            "ops.cast({}, 'float32')",
            "ops.stop_gradient({})",
            "ops.average_pool({}, 2)",
            "ops.max_pool({}, 2, padding='same')",
            "ops.one_hot(ops.argmax({}, axis=-1), 3)",
            "{}[:, :1]",
            "{}[..., ::2]",
            "ops.where({} > 0.0, {}, 0.1)",
            "ops.slice({}, START, SHAPE)",
            "ops.take({}, [0, 0], axis=AXIS)",
            "ops.tile({}, REPEATS)",
            "ops.roll({}, 1, axis=AXIS)",
            "ops.swapaxes({}, AXIS, -1)",
            "ops.moveaxis({}, AXIS, -1)",
            "ops.min({}, axis=AXIS)",
            "ops.prod({}, axis=AXIS)",
            "ops.var({}, axis=AXIS)",
            "ops.std({}, axis=AXIS, keepdims=True)",
            "ops.logsumexp({}, axis=AXIS)",
            "ops.cumsum({}, axis=AXIS)",
            "ops.sin({})",
            "ops.erf({})",
            "ops.log1p(ops.abs({}))",
            "ops.rsqrt(ops.square({}) + 0.5)",
            "ops.power({}, 2)",
            "ops.sign({})",
            "ops.round({})",
            "ops.floor({})",
            "ops.relu6({})",
            "ops.hard_sigmoid({})",
            "ops.log_softmax({})",
            "ops.clip({}, 0.0, 1.0)",
            "ops.top_k({}, 1)[0]",
            "ops.einsum('b...c->bc...', {})",
            "ops.reshape({}, ops.shape({}))",
            "ops.full_like({}, 0.5) + {}",
            "ops.isfinite({})",
            "ops.argmax({}, axis=-1)",
            "ops.dot({}, CONSTANT)",
            "ops.matmul({}, CONSTANT)",
            "{} * CONSTANT[0]",
            "{}[:, ::-1]",
            "{}[:, -1]",
        ]
    )
    sizes = writer.tensors[tensor].shape[1:]
    flat = 1
    for size in sizes:
        flat *= size or 1
    order = (0, *range(number - 1, 0, -1))
    pads = ((0, 0), *((1, 0) for _ in sizes))
    if None in sizes and any(sign in expression for sign in ("FLAT", "SHAPE")):
        return
    if not sizes and "CONSTANT" in expression:  # one number per sample, which no matrix can be multiplied with
        return
    values = {"AXIS": axis, "ORDER": order, "FLAT": flat, "PADS": pads, "REPEATS": (1,) * (number - 1) + (2,)}
    values |= {"START": (0,) * number, "SHAPE": (-1, *(max(1, (size or 1) - 1) for size in sizes))}
    last = (sizes[-1] if sizes else 1) or 1
    values["CONSTANT"] = f"np.linspace(-1, 1, {2 * last}, dtype='float32').reshape({last}, 2)"
    values["CONSTANT"] += "" if "[0]" not in expression else ".T"
    for sign, value in values.items():
        expression = expression.replace(sign, str(value))
    _compute_batched(writer, expression.replace("{}", tensor))


def operation_of_two(writer):
    tensor = writer.choose(is_float)
    if tensor is None:
        return
    shape = tuple(writer.tensors[tensor].shape)
    other = writer.choose(lambda t: is_float(t) and _may_merge(tuple(t.shape), shape))
    expression = writer.pick(
        [
            "{a} + {b}",
            "{a} * {b}",
            "{a} - {b}",
            "ops.add({b}, {a})",
            "ops.maximum({a}, {b})",
            "ops.minimum({a}, {b})",
            "ops.concatenate([{a}, {b}], axis=-1)",
            "ops.concatenate([{b}, {a}], axis=1)",
            "ops.stack([{a}, {b}], axis=1)",
            "ops.matmul({a}, ops.swapaxes({b}, -1, -2))",
            "ops.einsum('b...c,b...c->b...c', {a}, {b})",
            "{a} / (1.0 + ops.abs({b}))",
            "ops.where({a} > {b}, {a}, {b})",
            "ops.logaddexp({a}, {b})",
            "ops.einsum('b...c,b...d->b...cd', {a}, {b})",
            "ops.einsum('bqc,bkc->bqk', {a}, {b})",
            "ops.where({a} > 0.0, {b}, -{b})",
            "ops.clip({a}, -1.0, 1.0) * {b}",
            "ops.arctan2({a}, 0.5 + ops.abs({b}))",  # it jumps by pi where {b} is 0, which a pair writes without a sign
            "ops.append({a}, {b}, axis=-1)",
            "ops.hstack([{a}, {b}])",
            "ops.select([{a} > 0.0], [{a} + {b}], 0.25)",  # Keras tells a wrong shape where the condition is larger
            "ops.dot_product_attention({a}, {b}, {b})",
        ]
    )
    _compute_batched(writer, expression.format(a=tensor, b=other))


def _compute_batched(writer, expression):
    """Compute an operation; one that loses the batch axis is no use."""
    name = writer.compute(expression)
    if name is None:
        return
    for key in [key for key in writer.tensors if key == name or key.startswith(f"{name}[")]:
        shape = writer.tensors[key].shape
        if not shape or shape[0] is not None or 0 in shape:
            del writer.tensors[key]
