"""Steps over sequences: recurrent layers, attention, layers for every step."""

from fuzz.writing import is_float, layer, rank


def recurrent(writer):
    """Recurrent layers: both ways, stacked, with states that come in or go out."""
    tensor = writer.choose(rank(3))
    kind, units = writer.pick(["LSTM", "GRU", "SimpleRNN"]), writer.number(1, 3)
    settings = f"{units}, return_sequences={writer.flag()}"
    if kind == "GRU":
        settings += f", reset_after={writer.flag()}"
    settings += writer.pick(["", "", ", activation='relu'", ", use_bias=False", ", unroll=True", ", return_state=True"])
    inner = f"layers.{kind}({settings})"
    merged = writer.pick(["concat", "sum", "mul", "ave", None])
    expression = writer.pick(
        [
            inner,
            f"layers.{kind}({settings}, go_backwards=True)",
            f"layers.Bidirectional({inner}, merge_mode={merged!r})",
            f"layers.RNN([layers.GRUCell({units}), layers.{kind}Cell(2)], return_sequences={writer.flag()})",
        ]
    )
    layer(writer, expression, tensor)


def attention(writer):
    """The layers of attention over one axis or more, with masks."""
    query = writer.choose(rank(writer.pick([3, 3, 3, 4])))
    if query is None:
        return
    shape = writer.tensors[query].shape
    value = writer.choose(lambda tensor: is_float(tensor) and len(tensor.shape) == len(shape))
    name = writer.fresh("layer")
    grouped = writer.pick([False, False, True])
    more = writer.pick(["", "", ", use_bias=False", ", dropout=0.1"])
    if grouped:
        kind = f"GroupQueryAttention({writer.number(1, 4)}, {writer.pick([4, 2, 6])}, 2, name={name!r}{more})"
    else:
        more += writer.pick(["", "", ", value_dim=2", ", output_shape=3", ", attention_axes=1"])
        kind = f"MultiHeadAttention({writer.number(1, 3)}, {writer.number(1, 4)}, name={name!r}{more})"
    call = writer.pick(
        ["", "", ", use_causal_mask=True", ", return_attention_scores=True", f", key={value}", ", attention_mask=MASK"]
    )
    call = call.replace("MASK", f"np.tri({shape[1]}, {writer.tensors[value].shape[1]}, dtype='bool')[None]")
    if None in (shape[1], writer.tensors[value].shape[1]) and "mask=np" in call:
        return
    if writer.run(f"{name} = layers.{kind}") and writer.compute(f"{name}({query}, {value}{call})") is None:
        writer.lines.pop()


def plain_attention(writer):
    """Attention without projections."""
    query = writer.choose(rank(3))
    if query is None:
        return
    width = writer.tensors[query].shape[-1]
    value = writer.choose(lambda tensor: rank(3)(tensor) and tensor.shape[-1] == width)
    kind = writer.pick(
        ["Attention()", "Attention(use_scale=True)", "AdditiveAttention()", "Attention(score_mode='concat')"]
    )
    layer(writer, f"layers.{kind}", f"[{query}, {value}]")


def distributed(writer):
    """A layer or a model for every step."""
    tensor = writer.choose(lambda t: is_float(t) and len(t.shape) > 2)
    if tensor is None:
        return
    shape = tuple(writer.tensors[tensor].shape[2:])
    inner = writer.pick(
        [
            "layers.Dense(3, bias_initializer='normal')",
            "layers.Dense(3, activation='relu', use_bias=False)",
            "layers.SpectralNormalization(layers.Dense(3))",
            "layers.Conv2D(2, 2, padding='same')",
            "layers.BatchNormalization()",
            "layers.Activation('tanh')",
            f"keras.Sequential([keras.Input({shape}), layers.Dense(2), layers.ReLU()])",
        ]
    )
    for _ in range(writer.number(1, len(shape))):
        inner = f"layers.TimeDistributed({inner})"
    layer(writer, inner, tensor)


def steps_of_images(writer):
    """Convolutions over the steps of a sequence of lines or images."""
    tensor = writer.choose(lambda t: is_float(t) and len(t.shape) in (4, 5))
    if tensor is None:
        return
    dimension = len(writer.tensors[tensor].shape) - 3
    padding, sequences = writer.pick(["same", "valid"]), writer.flag()
    layer(writer, f"layers.ConvLSTM{dimension}D(2, 2, padding={padding!r}, return_sequences={sequences})", tensor)
