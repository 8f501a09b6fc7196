"""What `make fuzz` found: each once broke the whole way from a model to a verified file.

All of them take half a minute of one processor: every model is as small as what it found lets it be.
"""

import dataclasses

import pytest
from fuzz import invariants
from fuzz.graphs import Program

import qdq_workbench as qdq


@dataclasses.dataclass(frozen=True)
class Finding:
    """A program that failed, with the specification and the target that it failed under."""

    id: str
    code: str
    entries: tuple = ()
    target: str = "tensorrt"
    seed: int = 74
    hard: bool = False
    compiled: bool = False
    litert: bool = False


FINDINGS = [
    Finding(
        "a model of integers has no tensor to calibrate",
        "x = keras.Input((5,), name='x', dtype='int32')\nmodel = keras.Model(x, layers.Reshape((1, 1, -1))(x))",
    ),
    Finding(
        "an output of a nested model that nobody reads",
        """
x = keras.Input((2,), name='x')
inside = keras.Input((2,), name='inside')
hidden = keras.Sequential([keras.Input((2,)), layers.Dense(3), layers.BatchNormalization()], name='unread')(inside)
part = keras.Model(inside, [ops.minimum(inside, 0.1), hidden], name='part')
model = keras.Model(x, layers.Dense(2)(part(x)[0]))
""",
    ),
    Finding(
        "a layer that declares real numbers and passes on integers",
        """
x = keras.Input((5,), name='x', dtype='int32')
y = layers.RepeatVector(3, name='repeat')(x)
model = keras.Model(x, y - y)
""",
        ({"name": "rep*", "match": "glob", "quantize_output": True},),
    ),
    Finding(
        "a pair between a Resize and two convolutions that read it in different layouts",
        """
x = keras.Input((6, 6, 4), name='x')
y = layers.UpSampling2D(2, data_format='channels_first', name='up')(layers.DepthwiseConv2D(1, name='first')(x))
z = layers.MaxPooling2D(2, data_format='channels_first', name='pool')(y)
model = keras.Model(x, [z, layers.Conv2D(4, 2, name='second')(y)])
""",
        ({"name": "up", "quantize_output": True}, {"name": "*", "match": "glob"}),
        "onnxruntime",
    ),
    Finding(
        "the Clip of a pair in front of a layer that vanishes",
        """
x = keras.Input((1, 1), name='x')
y = layers.ActivityRegularization(l2=0.01, name='nothing')(x)
model = keras.Model(x, layers.Dense(3, use_bias=False, activation='sigmoid', name='dense')(y))
""",
        ({"name": "dense", "quantize_config": qdq.LayerQuantizeConfig(activation={"narrow_range": True})},),
        "onnxruntime",
    ),
    Finding(
        "ONNX Runtime makes one pair of two in a row",
        """
keras.config.set_dtype_policy('mixed_bfloat16')
x = keras.Input((7, 7, 4), name='x', dtype='float32')
y = ops.cumsum(layers.ActivityRegularization(l2=0.01, name='nothing')(x), axis=1)
model = keras.Model(x, layers.DepthwiseConv2D(2, strides=2, padding='same', use_bias=False, name='conv')(y))
""",
        (
            {"name": "nothing", "quantize_output": True, "quantize_weight": False},
            {"name": "Cumsum", "is_keras_class": True, "quantize_input": False, "quantize_output": True},
        ),
        seed=8420,
        hard=True,
    ),
    Finding(
        "a layer reads a tensor and, behind a layer that vanishes, the pair on it",
        """
x = keras.Input((5, 2), name='x')
y = layers.ReLU(name='relu')(x)
z = layers.ActivityRegularization(l2=0.01, name='nothing')(y)
model = keras.Model(x, layers.GroupQueryAttention(3, 4, 2, name='attention')(y, z, return_attention_scores=True)[1])
""",
        ({"name": "attention", "quantize_input": False}, {"name": "nothing", "quantize_weight": False}),
        "openvino",
    ),
    Finding(
        "integers that a layer declares as half-precision numbers and its reader computes in float32",
        """
keras.config.set_dtype_policy('mixed_float16')
x = keras.Input((5,), name='x', dtype='int32')
y = layers.RepeatVector(3, name='repeat')(x)
model = keras.Model(x, layers.Attention(score_mode='concat', name='attention')([y, y]))
""",
        ({"name": "attention", "quantize_weight": False},),
    ),
    Finding(
        "ONNX Runtime returns an output that is also quantized inside as its dequantized value",
        """
x = keras.Input((4, 4, 4, 1), name='x')
y = ops.max(x, axis=3)
z = layers.DepthwiseConv2D(2, dilation_rate=2, name='conv')(y)
model = keras.Model(x, {'z': z, 'y': y})
""",
        ({"name": "conv", "quantize_weight": False, "quantize_output": True},),
        "onnxruntime",
    ),
    Finding(
        "ONNX Runtime quantizes float weights between two pairs by itself",
        """
x = keras.Input((4, 4, 4, 4), name='x')
model = keras.Model(x, layers.BatchNormalization()(layers.Conv3D(3, 2, padding='same', name='conv')(x)))
""",
        ({"name": "conv", "quantize_weight": False}, {"name": "BatchNormalization", "is_keras_class": True}),
        "onnxruntime",
    ),
    Finding(
        "ONNX Runtime quantizes the float input of a product with integer weights by itself",
        """
x = keras.Input((4, 4, 4, 4), name='x')
model = keras.Model(x, layers.Dense(4)(layers.Dense(4, activation='gelu')(x)))
""",
        ({"name": "Dense", "is_keras_class": True, "quantize_input": False, "quantize_output": True},),
    ),
    Finding(
        "a grouped convolution in three dimensions",
        """
x = keras.Input((4, 4, 4, 4), name='x')
model = keras.Model(x, layers.Conv3D(4, 3, strides=2, groups=2)(x))
""",
    ),
    Finding(
        "a transposition that TensorFlow writes without its axes",
        """
x = keras.Input((None, 4), name='x')
model = keras.Model(x, layers.DepthwiseConv1D(3, dilation_rate=2, padding='same', depth_multiplier=2)(x))
""",
    ),
    Finding(
        "resizing by a factor that float32 rounds down",
        """
x = keras.Input((1, 3, 6), name='x')
model = keras.Model(x, layers.Conv2D(2, 1)(layers.Resizing(4, 5, interpolation='bilinear')(x)))
""",
        target="onnxruntime",
    ),
    Finding(
        "a normalization in half precision takes float32 as it is",
        """
keras.config.set_dtype_policy('mixed_float16')
x = keras.Input((4, 4, 3), name='x')
model = keras.Model(x, layers.GroupNormalization(groups=-1, name='norm')(ops.sigmoid(x)))
""",
        ({"name": "norm"},),
    ),
    Finding(
        "two equal activations of one tensor, of which the converter kept now one and now the other",
        """
x = keras.Input((6, 6, 2), name='x')
y = layers.Conv2D(2, 3, name='stem')(x)
sides = [layers.Activation('relu', name=f'relu{i}')(y) for i in range(6)]
model = keras.Model(x, [layers.Conv2D(2, 2, name=f'conv{i}')(side) for i, side in enumerate(sides)])
""",
        target="onnxruntime",
    ),
    Finding(
        "a slice whose numbers are int32, behind a convolution",
        """
x = keras.Input((8, 8, 4), name='x')
y = layers.SeparableConv2D(4, 1, padding='same', activation='relu6')(x)
model = keras.Model(x, y[..., ::2])
""",
    ),
    Finding(
        "one direction of a Bidirectional, whose other direction the converter drops",
        """
x = keras.Input((5, 3), name='x')
both = layers.Bidirectional(layers.GRU(2, return_state=True), name='both')(x)
model = keras.Model(x, layers.Dense(2)(both[1]))
""",
        target="onnxruntime",
    ),
    Finding(
        "ONNX Runtime moves a pair in front of the cropping between it and an output",
        """
x = keras.Input((4, 4, 4, 1), name='x')
y = layers.Add(name='twice')([x, x])
part = [layers.Conv3D(3, 2, padding='same'), layers.BatchNormalization(), layers.ReLU(), layers.Dense(2)]
z = keras.Sequential(part, name='part')(layers.Cropping3D((0, 1, 1))(y))
model = keras.Model(x, {'y': y, 'z': z})
""",
        target="onnxruntime",
    ),
    Finding(
        "differences from one that TensorFlow has operations for and ONNX has not",
        """
x = keras.Input((4,), name='x')
y = layers.Activation('celu')(layers.Dense(3)(x))
model = keras.Model(x, [layers.Dense(2)(ops.log1p(ops.abs(y))), ops.expm1(y)])
""",
    ),
    Finding(
        "an output of booleans",
        """
x = keras.Input((4,), name='x')
model = keras.Model(x, ops.isfinite(layers.Dense(3)(x)))
""",
    ),
    Finding(
        "a kernel of zeros that is read with inputs of far apart scales",
        """
x = keras.Input((5, 5, 4), name='x1')
layer = layers.Dense(4, activation='gelu', name='layer3')
y = layer(layer(x))
model = keras.Model(x, [ops.average_pool(y, 2), y])
""",
        seed=3,
        hard=True,
    ),
    Finding(
        "a pair in front of a mask that its layer does not use",
        """
x = keras.Input((4, 4, 4, 4), name='x')
masked = layers.Masking(0.0, name='masking')(x)
inner = keras.Sequential([keras.Input((4, 4, 4)), layers.Dense(2)])
model = keras.Model(x, layers.TimeDistributed(inner, name='steps')(masked))
""",
        ({"name": "NotEqual", "is_keras_class": True},),
        "onnxruntime",
    ),
    Finding(
        "an int32 bias whose step is larger than that of the pair behind its layer",
        """
x1 = keras.Input((8, 1), name='x1', dtype='float32')
x2 = keras.Input((1, 8, 8), name='x2', dtype='float32')
x3 = keras.Input((4, 1, 1), name='x3', dtype='float32')
layer4 = layers.AveragePooling1D(2, strides=1, padding='same', name='layer4')
t5 = layer4(x1)
layer6 = layers.Conv2D(3, 2, strides=1, dilation_rate=2, padding='same', activation='relu', name='layer6')
t7 = layer6(x3)
layer8 = layers.Masking(0.0, name='layer8')
t9 = layer8(t7)
t12 = layer4(x1)
t13 = ops.round(t5)
layer14 = layers.GaussianNoise(0.1, name='layer14')
t15 = layer14(x1)
t18 = ops.relu(x1)
t19 = ops.one_hot(ops.argmax(t5, axis=-1), 3)
layer20 = layers.BatchNormalization(axis=1, name='layer20')
t21 = layer20(t13)
layer22 = layers.DepthwiseConv2D(3, padding='same', use_bias=False, data_format='channels_first', name='layer22')
t23 = layer22(x3)
t24 = layer6(t23)
layer25 = layers.SeparableConv2D(4, 1, strides=2, padding='same', use_bias=False, name='layer25')
t26 = layer25(t24)
model = keras.Model(x3, t26)
""",
        target="onnxruntime",
        seed=0,
        hard=True,
    ),
    Finding(
        "a sum whose first part is the same as another one's, which TensorFlow computes once",
        """
x = keras.Input((2, 8, 8), name='x')
y = layers.Add(name='twice')([x, x])
model = keras.Model(x, layers.Average(name='mean')([x, x, y]))
""",
        ({"name": "twice", "quantize_output": True}, {"name": "mean"}),
        "onnxruntime",
    ),
    Finding(
        "a layer that computes NaN of zeros in half precision, to which a pair rounds small values",
        """
keras.config.set_dtype_policy('mixed_float16')
x = keras.Input((1, 1, 1), name='x', dtype='float32')
model = keras.Model(x, layers.UnitNormalization(name='norm')(x))
""",
        ({"name": "norm"},),
        "onnxruntime",
        seed=132,
        hard=True,
    ),
    Finding(
        "an upsampling whose Resize was named after the Dropout behind it, which has no operator",
        """
x = keras.Input((2, 2, 1), name='x')
y = layers.Dropout(0.5, name='drop')(layers.UpSampling2D(2, name='up')(x))
model = keras.Model(x, layers.Normalization(mean=0.3, variance=2.0, name='norm')(y))
""",
        ({"name": "norm", "quantize_input": True},),
        "onnxruntime",
    ),
    Finding(
        "inputs up to 1e30, behind which the int32 bias of a layer is 0 and its ReLU passes nothing but the bias",
        """
x = keras.Input((1, 4), name='x')
y = keras.Sequential([layers.Conv1D(3, 2, padding='same'), layers.ReLU(), layers.Dense(2)], name='first')(x)
z = keras.Sequential([layers.Conv1D(3, 2, padding='same'), layers.ReLU(), layers.Dense(2)], name='second')(y)
layers.LSTM(1, activation='relu', name='unused')(x)
model = keras.Model(x, layers.Concatenate(name='both')([z, y, z]))
""",
        (),
        "onnxruntime",
        seed=292,
        hard=True,
    ),
    Finding(
        "inputs up to 1e30 of a convolution that reads nothing but padding, whose output is a bias that becomes 0",
        """
x = keras.Input((1, 1, 1), name='x')
model = keras.Model(x, layers.Conv2D(6, 2, dilation_rate=2, padding='same', name='conv')(x))
""",
        (),
        "onnxruntime",
        seed=1810,
        hard=True,
    ),
    Finding(
        "a Reshape that does nothing between two Transposes, which were left one behind the other",
        """
x = keras.Input((4, 4, 4, 2), name='x')
y = layers.ConvLSTM2D(2, 2, padding='same', return_sequences=True, name='frames')(x)
y = layers.UpSampling3D((1, 2, 1), name='up')(ops.moveaxis(y, 3, -1))
model = keras.Model(x, layers.Minimum(name='least')([y, y]))
""",
        ({"name": "frames", "quantize_output": True}, {"name": "least", "quantize_input": True}),
        "onnxruntime",
    ),
    Finding(
        "one input, one unit: a kernel with two axes of one element, whose scale was given to the first",
        """
x = keras.Input((1,), name='x')
model = keras.Model(x, layers.Dense(1, name='dense')(x))
""",
        (),
        "onnxruntime",
    ),
    Finding(
        "a mean over a Dense, said to run on integers",
        """
x = keras.Input((4, 4, 2), name='x')
model = keras.Model(x, layers.GlobalAveragePooling2D(name='mean')(layers.Dense(3, name='dense')(x)))
""",
        (),
        "onnxruntime",
    ),
    Finding(
        "a mean in channels_first over a pool in channels_last, said to run on integers",
        """
x = keras.Input((3, 7, 7), name='x')
y = layers.MaxPooling2D(3, strides=1, name='max')(x)
model = keras.Model(x, layers.GlobalAveragePooling2D(data_format='channels_first', name='mean')(y))
""",
        (),
        "onnxruntime",
    ),
    Finding(
        "a mean that is 0 but for rounding, whose integer kernel ONNX Runtime refuses to run",
        """
x = keras.Input((4, 4, 3), name='x')
y = layers.GroupNormalization(groups=-1, scale=False, center=False, name='norm')(x)
model = keras.Model(x, layers.GlobalAveragePooling2D(name='mean')(y))
""",
        ({"name": "mean", "quantize_input": True, "quantize_output": True},),
        "onnxruntime",
    ),
    Finding(
        "a ReLU behind the noise on an input, said to be fused",
        """
x = keras.Input((4, 4, 2), name='x')
model = keras.Model(x, layers.ReLU(name='relu')(layers.GaussianNoise(0.1, name='noise')(x)))
""",
        (),
        "onnxruntime",
    ),
    Finding(
        "a SiLU of -49 and less, 1e-20 in TensorFlow and 0 in ONNX Runtime",
        """
x = keras.Input((4, 8, 8), name='x')
y = layers.ReLU(max_value=6.0, name='relu')(x)
model = keras.Model(x, layers.Dense(3, activation='silu', name='dense')(y))
""",
        ({"name": "dense", "quantize_output": True},),
        seed=6885,
        hard=True,
    ),
    Finding(
        "sums of terms up to 1e30, 0 in one program and more than 6 in the other",
        """
x = keras.Input((7, 7, 4), name='x')
model = keras.Model(x, layers.Dense(5, use_bias=False, activation='relu6', name='dense')(x))
""",
        (
            {
                "name": "dense",
                "quantize_output": True,
                "quantize_config": qdq.LayerQuantizeConfig(
                    weight={"num_bits": 4, "symmetric": False, "narrow_range": False}
                ),
            },
        ),
        "onnxruntime",
        seed=8575,
        hard=True,
    ),
    Finding(
        "flips of tensors with five axes, whose shape Keras tells and whose values it refuses",
        """
x = keras.Input((4, 4, 4, 2), name='x')
model = keras.Model(x, layers.Dense(2)(layers.RandomFlip(name='flip')(x)))
""",
    ),
    Finding(
        "a product that reads a tensor in float, and its transpose behind a pair",
        """
x = keras.Input((4, 4), name='x')
y = layers.Dense(4, name='dense')(x)
z = ops.transpose(y, (0, 2, 1))
model = keras.Model(x, ops.matmul(y, layers.Dense(4, name='last')(z)))
""",
        ({"name": "Matmul", "is_keras_class": True, "quantize_input": False},),
        "onnxruntime",
    ),
    Finding(
        "a SpatialDropout in mixed precision, saved without its policy",
        """
keras.config.set_dtype_policy('mixed_float16')
x = keras.Input((4, 3), name='x')
model = keras.Model(x, layers.Dense(2)(layers.SpatialDropout1D(0.2, name='drop')(x)))
""",
        ({"name": "drop", "quantize_output": True},),
    ),
    Finding(
        "a compiled model whose sums TensorFlow orders anew",
        """
x = keras.Input((2, 8, 8), name='x')
y = layers.Add(name='twice')([x, x])
model = keras.Model(x, layers.Average(name='mean')([x, y, x, y, x]))
""",
        ({"name": "twice", "quantize_output": True},),
        "onnxruntime",
        compiled=True,
    ),
    Finding(
        "a recurrent layer that reads the integers that another layer passes on",
        """
x = keras.Input((1,), name='x', dtype='int32')
model = keras.Model(x, layers.SimpleRNN(3, name='rnn')(layers.RepeatVector(3, name='repeat')(x)))
""",
        target="openvino",
    ),
    Finding(
        "a pair behind a Dropout, whose grid LiteRT's converter dropped",
        """
x = keras.Input((8, 8, 4), name='x')
y = layers.Resizing(8, 5, interpolation='bilinear', name='resize')(x)
model = keras.Model(x, layers.AlphaDropout(0.1, name='last')(layers.Dropout(0.2, name='drop')(y)))
""",
        ({"name": "*", "match": "glob", "quantize_input": True, "quantize_output": True},),
        "onnxruntime",
        seed=85,
        hard=True,
        litert=True,
    ),
    Finding(
        "a tanh in float in front of a Dropout, which LiteRT's converter rounded to 1/128",
        """
x = keras.Input((4, 4, 3), name='x')
y = layers.Dense(4, kernel_initializer=keras.initializers.Constant(0.01), activation='tanh', name='dense')(x)
z = layers.SpatialDropout2D(0.2, name='drop')(y)
model = keras.Model(x, [ops.sin(y), layers.Conv2D(6, 1, activation='gelu', groups=2, name='conv')(z)])
""",
        target="onnxruntime",
        seed=1506,
        litert=True,
    ),
    Finding(
        "a bias of one number that LiteRT's converter gave a transposed convolution of two channels",
        """
x = keras.Input((4, 4, 3), name='x')
y = layers.Conv2DTranspose(2, 3, use_bias=False, activation='hard_sigmoid', name='transposed')(x)
model = keras.Model(x, y)
""",
        litert=True,
    ),
    Finding(
        "an EinsumDense in front of a float activation, a LiteRT kernel of integers and floats",
        """
x = keras.Input((4, 3), name='x')
einsum = layers.EinsumDense('abc,cd->abd', output_shape=(None, 5), bias_axes='d', activation='silu', name='einsum')
model = keras.Model(x, einsum(x))
""",
        litert=True,
    ),
    Finding(
        "integers that a nested model in half precision casts to its type, in front of a pair",
        """
keras.config.set_dtype_policy('mixed_float16')
x = keras.Input((8,), name='x', dtype='int32')
seq = keras.Sequential([layers.Conv1D(3, 2), layers.Dense(2)], name='seq')
model = keras.Model(x, seq(layers.RepeatVector(3, name='repeat')(x)))
""",
        target="onnxruntime",
    ),
    Finding(
        "two resizings, the second by pixels of a size inferred from a scale that float32 had rounded down",
        """
x = keras.Input((5, 5, 4), name='x')
y = layers.Resizing(7, 5, interpolation='bilinear', name='up')(x)
y = layers.Resizing(5, 5, interpolation='nearest', name='down')(y)
model = keras.Model(x, layers.ConvLSTM1D(2, 2, padding='same', name='rnn')(y))
""",
        target="openvino",
        seed=9999,
    ),
    Finding(
        "a transposed convolution with more stride than kernel, whose shape ONNX could not infer for its negative pads",
        """
x = keras.Input((8, 1), name='x')
model = keras.Model(x, layers.Conv1DTranspose(11, 1, strides=2, data_format='channels_first', name='conv')(x))
""",
        target="onnxruntime",
    ),
    Finding(
        "samples joined along the axis of the batch, an output that the LiteRT file's batches cannot be joined to",
        """
x = keras.Input((3,), name='x')
parts = ops.unstack(x, axis=1)
model = keras.Model(x, layers.Concatenate(name='joined')([parts[0], parts[2], parts[2]]))
""",
        litert=True,
    ),
    Finding(
        "a product of one tensor, which carries a mask, in a nested model",
        """
x = keras.Input((5,), name='x', dtype='int32')
inside = keras.Input((5,), dtype='int32')
y = layers.Embedding(10, 3, mask_zero=True, name='embedding')(inside)
part = keras.Model(inside, [layers.Multiply(name='product')([y]), y], name='part')
model = keras.Model(x, layers.Minimum(name='least')(part(x)))
""",
        target="onnxruntime",
        litert=True,
    ),
    Finding(
        "a split with a result that nobody reads, now on integers and now in float in its LiteRT file",
        """
x = keras.Input((4, 4, 4, 3), name='x')
y = ops.maximum(x, x)
model = keras.Model(x, [ops.split(y, 2, axis=2)[1], ops.mean(x, axis=3)])
""",
        (
            {"name": "Split", "is_keras_class": True, "quantize_input": True, "quantize_output": True},
            {"name": "Maximum", "is_keras_class": True, "quantize_input": False, "quantize_output": True},
            {"name": "Mean", "is_keras_class": True, "quantize_input": False},
        ),
        seed=456,
        hard=True,
        litert=True,
    ),
    Finding(
        "the rows of an Embedding with integers, which a loop for its mask reads: no pair is moved over a Gather",
        """
x = keras.Input((8,), name='x', dtype='int32')
y = layers.Embedding(10, 1, mask_zero=True, name='table')(x)
model = keras.Model(x, layers.RNN([layers.GRUCell(2), layers.LSTMCell(2)], name='cells')(y))
""",
        ({"name": "RNN", "is_keras_class": True, "quantize_input": False},),
        "openvino",
    ),
    Finding(
        "an addition of 0, without which ONNX Runtime moves the pair before it into a loop and ends the process",
        """
x = keras.Input((4, 4), name='x')
y = layers.Rescaling(1.0, name='same')(layers.Activation('tanh', name='tanh')(x))
model = keras.Model(x, layers.Bidirectional(layers.GRU(2, activation='selu'), name='loop')(y))
""",
        (
            {"name": "Activation", "is_keras_class": True, "quantize_output": True},
            {"name": "Bidirectional", "is_keras_class": True, "quantize_input": False},
        ),
        "onnxruntime",
    ),
    Finding(
        "a pair on the result of a Reshape that has the fixed range of its reader, with a fix that changed nothing",
        """
x = keras.Input((4, 4, 4, 2), name='x')
einsum = layers.EinsumDense('abcd,de->abce', output_shape=(None, None, 3), bias_axes='e', name='einsum')
model = keras.Model(x, einsum(layers.Reshape((1, 1, -1), name='flat')(x)))
""",
        (
            {
                "name": "EinsumDense",
                "is_keras_class": True,
                "quantize_output": True,
                "quantize_config": qdq.LayerQuantizeConfig(
                    activation={"quantizer": "fixed", "init_min": -1.0, "init_max": 2.0}
                ),
            },
            {"name": "Reshape", "is_keras_class": True, "quantize_weight": False, "quantize_output": True},
        ),
        "onnxruntime",
        seed=760,
        hard=True,
    ),
    Finding(
        "an EinsumDense that a pair reads, and a sum of three in float, said to run on integers",
        """
x = keras.Input((2,), name='x')
y = layers.EinsumDense('ab,bc->ac', output_shape=(3,), bias_axes='c', name='einsum')(x)
model = keras.Model(x, layers.Add(name='sum')([layers.Dense(3, activation='relu', name='dense')(y), y, y]))
""",
        target="onnxruntime",
    ),
    Finding(
        "a sum of the integers of a softmax, of which ONNX Runtime's kernel returns many one step too low",
        """
x = keras.Input((2, 8, 8), name='x')
y = layers.Reshape((1, 128), name='reshape')(layers.Activation('softmax', name='softmax')(x))
model = keras.Model(x, ops.sum(y, axis=-1))
""",
        (
            {"name": "softmax", "quantize_input": True, "quantize_output": True},
            {"name": "reshape", "quantize_input": False, "quantize_output": True},
        ),
        seed=4,
    ),
    Finding(
        "infinities, because the 0.5 under a root rounds to 0 beside a square of a large number",
        """
x = keras.Input((4, 8, 8), name='x')
y = layers.Average(name='mean')([x, ops.flip(x, 3), x])
model = keras.Model(x, ops.rsqrt(ops.square(y) + 0.5))
""",
        (
            {"name": "Square", "is_keras_class": True, "quantize_input": True, "quantize_output": True},
            {"name": "Add", "is_keras_class": True, "quantize_input": True, "quantize_output": True},
        ),
        "onnxruntime",
        seed=1401,
        hard=True,
    ),
    Finding(
        "a Dense without a bias in front of a hard sigmoid, whose 3 was taken for that bias",
        """
x = keras.Input((8, 1), name='x')
y = layers.Dense(4, use_bias=False, name='dense')(x)
model = keras.Model(x, layers.Activation('hard_sigmoid', name='bend')(y))
""",
        target="openvino",
    ),
    Finding(
        "a channels-first convolution in front of a channels-last upsampling, whose Transpose parted it from its bias",
        """
x = keras.Input((4, 8, 3), name='x')
y = layers.Conv2D(5, 2, dilation_rate=2, data_format='channels_first', bias_initializer='ones', name='conv')(x)
model = keras.Model(x, layers.UpSampling2D(2, name='up')(y))
""",
        target="onnxruntime",
    ),
    Finding(
        "a fix beside a reader with a fixed range, which cost the concatenation in front its integers",
        """
x = keras.Input((2,), name='x')
y = layers.Concatenate(axis=1, name='joined')([x])
model = keras.Model(x, [layers.Dense(3, name='own')(y), layers.Dense(1, name='off')(y)])
""",
        (
            {"name": "joined", "quantize_weight": False},
            {
                "name": "own",
                "quantize_config": qdq.LayerQuantizeConfig(
                    activation={"quantizer": "fixed", "init_min": -1.0, "init_max": 2.0}
                ),
            },
            {"name": "off", "quantize_input": False, "quantize_weight": False},
        ),
        "onnxruntime",
    ),
    Finding(
        "an upsampling by 1 along its first axis, whose Reshape kept a Transpose behind the pair of a convolution",
        """
x = keras.Input((1, 1, 1, 4), name='x')
y = layers.UpSampling3D((1, 2, 1), name='up')(layers.Conv3D(3, 1, name='conv')(x))
model = keras.Model(x, layers.Dense(3, activation='tanh', name='dense')(y))
""",
        target="onnxruntime",
    ),
    Finding(
        "a gain of zeros of as many elements as the result, in front of which LiteRT's converter leaves out everything",
        """
x = keras.Input((1, 2), name='x')
y = layers.Dense(1, use_bias=False, activation='relu', name='dense')(x)
norm = layers.GroupNormalization(groups=1, gamma_initializer='zeros', name='norm')
model = keras.Model(x, norm(y))
""",
        seed=4,
        hard=True,
        litert=True,
    ),
    Finding(
        "an attention that reads one tensor three times, once with its pair, which lies behind a Transpose in the file",
        """
x = keras.Input((5, 5, 3), name='x')
y = layers.DepthwiseConv2D(2, activation='relu6', name='conv')(x)
model = keras.Model(x, ops.dot_product_attention(y, y, y))
""",
        (
            {"name": "DotProductAttention", "is_keras_class": True, "quantization_index": [0], "quantize_output": True},
            {"name": "conv", "quantize_input": False, "quantize_output": False},
        ),
        seed=2072,
        hard=True,
        litert=True,
    ),
    Finding(
        "a GRU whose states are 1 and -1, half a step from two integers; those of ONNX Runtime are 1.0000005",
        """
x = keras.Input((3, 2), name='x')
model = keras.Model(x, layers.GRU(3, name='gru')(x))
""",
        ({"name": "gru", "quantize_output": True},),
        "onnxruntime",
        seed=26,
        hard=True,
    ),
    Finding(
        "pairs in front of an Identity and behind it, and a layer that reads the tensor in front of both, and behind",
        """
x = keras.Input((2,), name='x')
y = layers.Identity(name='between')(x)
model = keras.Model(x, y - x)
""",
        ({"name": "between", "quantize_input": True, "quantize_output": True},),
    ),
    Finding(
        "gates of a ConvLSTM whose sums of 1e30 cancel, in a loop that takes its sequence from the graph around it",
        """
x = keras.Input((4, 4, 4, 2), name='x')
y = layers.ConvLSTM2D(2, 2, padding='same', return_sequences=True, name='conv')(x)
model = keras.Model(x, ops.square(y))
""",
        (
            {"name": "conv", "quantize_config": qdq.LayerQuantizeConfig(weight={"num_bits": 2})},
            {"name": "Square", "is_keras_class": True, "quantize_input": False, "quantize_output": True},
        ),
        "openvino",
        seed=183,
        hard=True,
    ),
    Finding(
        "an int32 bias of nearly half a step, ten of those of the pair behind it, in one channel of all samples",
        """
x = keras.Input((3,), name='x')
y = layers.BatchNormalization(name='norm')(layers.Dense(3, name='dense')(-x))
model = keras.Model(x, layers.Dense(2, name='head')(y))
""",
        (
            {
                "name": "dense",
                "quantize_input": True,
                "quantize_config": qdq.LayerQuantizeConfig(
                    weight={"num_bits": 2}, activation={"num_bits": 4, "symmetric": False, "signed": False}
                ),
            },
            {"name": "norm", "quantize_output": True},
        ),
        "onnxruntime",
        seed=23,
        hard=True,
    ),
    Finding(
        "a softmax along another axis, in front of two moves: in parts of the file ONNX Runtime has no kernel for it",
        """
x = keras.Input((5, 5, 4), name='x')
y = ops.expand_dims(layers.Softmax(axis=1, name='softmax')(x), 2)
model = keras.Model(x, layers.Conv3D(1, 2, padding='same', name='conv')(y))
""",
        ({"name": "softmax", "quantize_input": True},),
        seed=100,
        hard=True,
    ),
    Finding(
        "one sample that is as long as the second axis of what it is added to: Keras took it for a bias",
        """
x = keras.Input((2, 1, 1), name='x')
y = x + layers.Conv2D(2, 3, strides=2, padding='same', name='conv')(x)
model = keras.Model(x, layers.ReLU(name='relu')(y))
""",
        ({"name": "relu", "quantize_input": True},),
        "onnxruntime",
        hard=True,
    ),
    Finding(
        "two global average pools, and no convolution that brings their pairs into its layout",
        """
x = keras.Input((7, 7, 3), name='x')
y = layers.GlobalAveragePooling2D(keepdims=True, name='first')(x)
model = keras.Model(x, layers.GlobalAveragePooling2D(name='second')(y))
""",
        (),
        "onnxruntime",
    ),
    Finding(
        "a tensor that is two outputs, between a pair and a global average pool",
        """
x = keras.Input((6, 2), name='x')
y = layers.AlphaDropout(0.1, name='drop')(x)
model = keras.Model(x, {'one': y, 'other': y, 'mean': layers.GlobalAveragePooling1D()(y)})
""",
        ({"name": "drop", "quantize_output": True},),
        "onnxruntime",
    ),
    Finding(
        "a compiled model of which TensorFlow multiplies constants, those of its quantized copy or its own",
        """
x = keras.Input((None, None, 1), name='x1')
two = ops.hstack([x, x])
scaled = layers.RMSNormalization(name='layer3')(x)
conv = layers.Conv2D(2, 1, strides=2, activation='gelu', name='layer5')(two)
angle = ops.arctan2(conv, 0.5 + ops.abs(conv))
hard = layers.Activation('hard_silu', name='layer8')(conv)
soft = layers.Activation('sigmoid', name='layer14')(scaled)
model = keras.Model(x, [soft, hard, layers.Activation('selu', name='layer10')(angle)], name='model')
""",
        (),
        "onnxruntime",
        seed=5188,
        hard=True,
        compiled=True,
    ),
    Finding(
        "a layer of all steps, of which there are any number: the LiteRT file had one",
        """
x = keras.Input((None, None, 4), name='x')
y = layers.TimeDistributed(layers.BatchNormalization())(x)
model = keras.Model(x, layers.Conv2DTranspose(3, 3)(y))
""",
        (),
        "openvino",
        litert=True,
    ),
    Finding(
        "a SpatialDropout in mixed precision, saved inside of its wrapper",
        """
keras.config.set_dtype_policy('mixed_float16')
x = keras.Input((4, 4, 3), name='x')
model = keras.Model(x, layers.SpatialDropout2D(0.2, name='drop')(layers.Softmax()(x)))
""",
        ({"name": "drop", "quantize_input": True, "quantize_output": True},),
    ),
    Finding(
        "a sum of a tensor and of what a Flatten of it reads through a pair, of which the file has no operator",
        """
x = keras.Input((3,), name='x')
model = keras.Model(x, x + layers.Flatten(name='flat')(x))
""",
        ({"name": "flat", "quantize_input": True},),
    ),
    Finding(
        "an addition of one column to a wider tensor, in a file with a batch of one",
        """
x = keras.Input((2, 1, 1), name='x')
model = keras.Model(x, layers.Add(name='sum')([layers.Dense(4, use_bias=False)(x), x, x]))
""",
        seed=3,
        hard=True,
    ),
    Finding(
        "two layers whose weights are zeros, as many: the bias of one was compared with that of the other",
        """
x = keras.Input((7, 7, 1), name='x')
y = layers.SeparableConv2D(3, 1, depth_multiplier=2, activation='tanh', name='first')(x)
y = layers.Dense(2, use_bias=False, activation='gelu')(y)
parts = [layers.Conv2D(3, 2, padding='same'), layers.BatchNormalization(), layers.Dense(2)]
y = keras.Sequential(parts, name='parts')(y)
model = keras.Model(x, layers.Dense(3)(y))
""",
        (),
        "onnxruntime",
        seed=1693,
        hard=True,
        litert=True,
    ),
]


@pytest.mark.filterwarnings("ignore:Planned but not in the file")  # true of a mask that nothing uses
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_found(finding, tmp_path):
    spec = qdq.QuantizationSpec()
    for entry in finding.entries:
        spec.add(**entry)
    model = Program(finding.code, finding.seed, hard=finding.hard).build()
    q_model = invariants.check_model(
        model, spec, finding.target, tmp_path, finding.seed, compiled=finding.compiled, hard=finding.hard
    )
    if finding.litert:
        invariants.check_litert(q_model, tmp_path)
        assert (tmp_path / "model.tflite").is_file()
