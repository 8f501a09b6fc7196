"""Layers made as those of KerasHub, of another library and with layers of Keras inside, and models of them."""

import functools

import keras
import numpy as np
import small_models
from keras import layers, ops


@keras.saving.register_keras_serializable("composites")
class CachedAttention(layers.MultiHeadAttention):
    """As CachedMultiHeadAttention: another `call` than Keras's, which can keep keys and values."""

    def call(self, query, value, attention_mask=None, cache=None, training=None):
        query, key, value = self._query_dense(query), self._key_dense(value), self._value_dense(value)
        if cache is not None:
            raise NotImplementedError
        found, _ = self._compute_attention(query, key, value, attention_mask=attention_mask, training=training)
        return self._output_dense(found)


class Transformer(layers.Layer):
    """What TransformerEncoder and TransformerDecoder have in common; as there, the configuration is incomplete."""

    attention = layers.MultiHeadAttention

    def __init__(self, wide, dropout=0.0, **settings):
        super().__init__(**settings)
        self.wide, self.dropout = wide, dropout

    def get_config(self):
        return {**super().get_config(), "never_an_argument": 1}

    def build(self, shape):
        own = {"dtype": self.dtype_policy}
        self._self_attention_layer = self.attention(2, shape[-1] // 2, dropout=self.dropout, name="attention", **own)
        self._self_attention_layer.build(shape, shape)
        self._norms = [layers.LayerNormalization(**own), layers.LayerNormalization(**own)]
        self._wide_dense = layers.Dense(self.wide, activation="gelu", **own)
        self._narrow_dense = layers.Dense(shape[-1], **own)
        self._last_dropout = layers.Dropout(self.dropout, **own)
        self._norms[0].build(shape)
        self._norms[1].build(shape)
        self._wide_dense.build(shape)
        self._narrow_dense.build((*shape[:-1], self.wide))

    def after(self, x, attended, training):
        x = self._norms[0](x + attended)
        y = self._narrow_dense(self._wide_dense(x))
        return self._norms[1](x + self._last_dropout(y, training=training))

    def compute_output_shape(self, shape):
        return shape


@keras.saving.register_keras_serializable("composites")
class Encoder(Transformer):
    def call(self, x, padding_mask=None, training=None):
        mask = None if padding_mask is None else ops.cast(ops.expand_dims(padding_mask, 1), "int32")
        return self.after(x, self._self_attention_layer(x, x, attention_mask=mask, training=training), training)


@keras.saving.register_keras_serializable("composites")
class Decoder(Transformer):
    attention = CachedAttention

    def call(self, x, padding_mask=None, cache=None, training=None):
        batch, steps = ops.shape(x)[0], ops.shape(x)[1]
        before = ops.expand_dims(ops.arange(steps, dtype="float32"), 1) >= ops.arange(steps, dtype="float32")
        mask = ops.broadcast_to(ops.expand_dims(before, 0), (batch, steps, steps))
        if padding_mask is not None:
            mask = ops.minimum(ops.cast(ops.expand_dims(padding_mask, 1), "int32"), ops.cast(mask, "int32"))
        seen = self._self_attention_layer(x, x, attention_mask=mask, cache=cache, training=training)
        return self.after(x, seen, training)


@keras.saving.register_keras_serializable("composites")
class Rotary(layers.Layer):
    """A layer without weights that cannot tell its configuration."""

    def __init__(self, longest=100.0, **settings):
        super().__init__(**settings)
        self.longest = longest

    def call(self, x, start=0):
        steps = ops.shape(x)[1]
        half = x.shape[-1] // 2
        turns = ops.cast(ops.arange(steps) + start, x.dtype)[:, None] / ops.cast(
            self.longest ** (np.arange(half) / half), x.dtype
        )
        sin, cos = ops.sin(turns)[None, :, None], ops.cos(turns)[None, :, None]
        a, b = ops.split(x, 2, axis=-1)
        return ops.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def compute_output_shape(self, shape):
        return shape


@keras.saving.register_keras_serializable("composites")
class RootMeanSquare(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(ops.square(x), -1, keepdims=True) + 1e-6) * self.scale


@keras.saving.register_keras_serializable("composites")
class GroupedAttention(layers.Layer):
    """As in Llama and Gemma: groups of queries share keys, all in products of einsum."""

    def build(self, shape):
        self.query_dense = layers.EinsumDense("btd,dnh->btnh", (None, 4, 2), dtype=self.dtype_policy)
        self.key_dense = layers.EinsumDense("btd,dnh->btnh", (None, 2, 2), dtype=self.dtype_policy)
        self.value_dense = layers.EinsumDense("btd,dnh->btnh", (None, 2, 2), dtype=self.dtype_policy)
        self.output_dense = layers.EinsumDense("btnh,nhd->btd", (None, shape[-1]), dtype=self.dtype_policy)
        self.rotary = Rotary(dtype=keras.dtype_policies.get(self.dtype_policy))
        self.softmax = layers.Softmax(dtype="float32")
        for dense in (self.query_dense, self.key_dense, self.value_dense):
            dense.build(shape)
        self.output_dense.build((*shape[:-1], 4, 2))

    def call(self, x, attention_mask):
        query, key = self.rotary(self.query_dense(x)), self.rotary(self.key_dense(x))
        batch, steps = ops.shape(query)[:2]
        query = ops.reshape(query * 0.7, (batch, steps, 2, 2, 2))
        scores = self.softmax(ops.einsum("btkgh,bskh->bkgts", query, key), attention_mask[:, None, None])
        seen = ops.einsum("bkgts,bskh->btkgh", ops.cast(scores, self.compute_dtype), self.value_dense(x))
        return self.output_dense(ops.reshape(seen, (batch, steps, 4, 2)))

    def compute_output_shape(self, shape, *_):
        return shape


@keras.saving.register_keras_serializable("composites")
class Llama(layers.Layer):
    def build(self, shape):
        self.attention = GroupedAttention(dtype=self.dtype_policy)
        self.attention.build(shape)
        self.norm, self.second_norm = RootMeanSquare(dtype=self.dtype_policy), RootMeanSquare(dtype=self.dtype_policy)
        self.gate, self.wide = (layers.Dense(12, use_bias=False, dtype=self.dtype_policy) for _ in range(2))
        self.narrow = layers.Dense(shape[-1], use_bias=False, dtype=self.dtype_policy)
        for part in (self.norm, self.second_norm, self.gate, self.wide):
            part.build(shape)
        self.narrow.build((*shape[:-1], 12))

    def call(self, x):
        batch, steps = ops.shape(x)[:2]
        before = ops.arange(steps)[:, None] >= ops.arange(steps)
        x = x + self.attention(self.norm(x), ops.broadcast_to(before[None], (batch, steps, steps)))
        y = self.second_norm(x)
        return x + self.narrow(ops.silu(self.gate(y)) * self.wide(y))

    def compute_output_shape(self, shape):
        return shape


@keras.saving.register_keras_serializable("composites")
class Patches(layers.Layer):
    """As ViTPatchingAndEmbedding: a weight of its own, one per sample, and positions that are constants."""

    def build(self, shape):
        self.token = self.add_weight(shape=(1, 1, 8), initializer="random_normal", name="token")
        self.convolution = layers.Conv2D(8, 4, 4, dtype=self.dtype_policy)
        self.convolution.build(shape)
        self.positions = layers.Embedding(5, 8, dtype=self.dtype_policy)
        self.positions.build((1, 5))
        self.numbers = ops.expand_dims(ops.arange(5), 0)

    def call(self, image):
        x = self.convolution(image)
        sizes = ops.shape(x)
        x = ops.reshape(x, [sizes[0], -1, sizes[-1]])
        x = ops.concatenate([ops.tile(self.token, (sizes[0], 1, 1)), x], axis=1)
        return ops.add(x, self.positions(self.numbers))


@keras.saving.register_keras_serializable("composites")
class Stack(layers.Layer):
    """Composite layers in a composite layer."""

    def build(self, shape):
        self.blocks = [Encoder(12, name="block_0", dtype=self.dtype_policy)]
        for block in self.blocks:
            block.build(shape)

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x


GENERATOR = np.random.default_rng(0)
WORDS = GENERATOR.integers(1, 30, (8, 6)).astype("int32")
REACH = (GENERATOR.random((8, 6)) > 0.3).astype("int32")
REACH[:, 0] = 1
IMAGES = GENERATOR.normal(size=(8, 8, 8, 3)).astype("float32")
STEPS = GENERATOR.normal(size=(8, 6, 8)).astype("float32")


shaken = functools.partial(small_models.shaken, spread=0.7)


def text_model(kind, *, dropout=0.0, calls=1):
    """Return a model of words of any number, and of which of them count; its block is called `calls` times."""
    words = keras.Input((None,), dtype="int32", name="words")
    reach = keras.Input((None,), dtype="int32", name="reach")
    x = layers.Embedding(30, 8, name="embedding")(words)
    block = kind(12, dropout, name="block")
    for _ in range(calls):
        x = block(x, padding_mask=reach)
    return shaken(keras.Model([words, reach], layers.Dense(3, name="head")(x)))


def llama():
    words = keras.Input((None,), dtype="int32", name="words")
    # Not 30 words: ONNX Runtime before 1.25 miscomputes 33 rows or more by 17 to 31 columns on processors with AMX.
    table = layers.ReversibleEmbedding(32, 8, name="embedding")
    return shaken(keras.Model(words, table(Llama(name="block")(table(words)), reverse=True)))


def pictures():
    image = keras.Input((8, 8, 3), name="image")
    x = Stack(name="encoder")(Patches(name="patches")(image))
    return shaken(keras.Model(image, layers.Dense(3, name="head")(x[:, 0])))


MODELS = {
    "bert": (lambda: text_model(Encoder, calls=2), [WORDS, REACH]),
    "gpt": (lambda: text_model(Decoder, dropout=0.1), [WORDS, REACH]),
    "llama": (llama, WORDS),
    "vit": (pictures, IMAGES),
}
