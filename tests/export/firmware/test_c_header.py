"""The C header compiles as C99 without a warning, and a program that has nothing else computes the model."""

import re
import shutil
import subprocess

import keras
import numpy as np
import pytest
from firmware_nets import NETS, calibrated, with_biases
from keras import layers
from project import ROOT

import qdq_workbench as qdq
from qdq_workbench.export.firmware import interpreter

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

PROGRAM = r"""
#include <stdio.h>
#include "weights.h"

static int32_t requantize(int32_t acc, int32_t multiplier, int32_t shift)
{
    const int left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    const int32_t high = (int32_t)(((int64_t)acc * (1 << left) * multiplier + (1 << 30)) >> 31);
    const int32_t mask = (int32_t)((1LL << right) - 1), threshold = (mask >> 1) + (high < 0);
    return (high >> right) + ((high & mask) > threshold);
}

static int8_t clamped(int32_t q, int32_t low, int32_t high)
{
    return (int8_t)(q < low ? low : q > high ? high : q);
}

/* One output of a window: STEP inputs apart in memory, OUT outputs; a depthwise one reads channel c alone. */
#define WINDOW(NAME, name, x, y, DEPTHWISE)                                                                           \
    for (int i = 0; i < NAME##_OUTPUT_H; i++)                                                                         \
        for (int j = 0; j < NAME##_OUTPUT_W; j++)                                                                     \
            for (int c = 0; c < NAME##_OUTPUT_C; c++) {                                                               \
                int32_t acc = name##_bias[c];                                                                         \
                for (int u = 0; u < NAME##_KERNEL_H; u++)                                                             \
                    for (int v = 0; v < NAME##_KERNEL_W; v++) {                                                       \
                        const int h = i * NAME##_STRIDE_H + u * NAME##_DILATION_H - NAME##_PAD_TOP;                   \
                        const int w = j * NAME##_STRIDE_W + v * NAME##_DILATION_W - NAME##_PAD_LEFT;                  \
                        if (h < 0 || w < 0 || h >= NAME##_INPUT_H || w >= NAME##_INPUT_W)                             \
                            continue;                                                                                 \
                        const int8_t *in = x + (h * NAME##_INPUT_W + w) * NAME##_INPUT_C;                             \
                        const int tap = u * NAME##_KERNEL_W + v;                                                      \
                        if (DEPTHWISE)                                                                                \
                            acc += (in[c] + NAME##_INPUT_OFFSET) * name##_kernel[tap * NAME##_OUTPUT_C + c];          \
                        else                                                                                          \
                            for (int k = 0; k < NAME##_INPUT_C; k++)                                                  \
                                acc += (in[k] + NAME##_INPUT_OFFSET)                                                  \
                                       * name##_kernel[((c * NAME##_KERNEL_H * NAME##_KERNEL_W) + tap)                \
                                                       * NAME##_INPUT_C + k];                                         \
                    }                                                                                                 \
                y[(i * NAME##_OUTPUT_W + j) * NAME##_OUTPUT_C + c] =                                                  \
                    clamped(requantize(acc, name##_multiplier[c], name##_shift[c]) + NAME##_OUTPUT_OFFSET,            \
                            NAME##_ACTIVATION_MIN, NAME##_ACTIVATION_MAX);                                            \
            }

int main(void)
{
    static int8_t image[TINY_IMAGE_QUANTIZED_SIZE], first[TINY_CONV_QUANTIZED_SIZE];
    static int8_t second[TINY_DEEP_QUANTIZED_SIZE], scores[TINY_HEAD_QUANTIZED_SIZE];
    while (fread(image, 1, sizeof image, stdin) == sizeof image) {
        WINDOW(TINY_CONV_CONV2D, tiny_conv, image, first, 0)
        WINDOW(TINY_DEEP_DEPTHWISECONV2D, tiny_deep, first, second, 1)
        for (int c = 0; c < TINY_HEAD_DENSE_OUTPUT_C; c++) {
            int32_t acc = tiny_head_bias[c];
            for (int k = 0; k < TINY_HEAD_DENSE_INPUT_C; k++)
                acc += (second[k] + TINY_HEAD_DENSE_INPUT_OFFSET)
                       * tiny_head_kernel[c * TINY_HEAD_DENSE_INPUT_C + k];
            scores[c] = clamped(requantize(acc, tiny_head_multiplier[c], tiny_head_shift[c])
                                    + TINY_HEAD_DENSE_OUTPUT_OFFSET,
                                TINY_HEAD_DENSE_ACTIVATION_MIN, TINY_HEAD_DENSE_ACTIVATION_MAX);
        }
        fwrite(scores, 1, sizeof scores, stdout);
    }
    return 0;
}
"""

CPP_MAIN = """
#include <cstdio>
#include "weights.h"
#define HEAD(NAME) TINY_HEAD_DENSE_##NAME

int main() {
    const Layer head = {tiny_head_kernel, tiny_head_bias, tiny_head_multiplier, tiny_head_shift, HEAD(INPUT_C),
                        HEAD(OUTPUT_C), HEAD(INPUT_OFFSET), HEAD(OUTPUT_OFFSET), HEAD(ACTIVATION_MIN),
                        HEAD(ACTIVATION_MAX)};
    static std::int8_t x[HEAD(INPUT_C)], y[HEAD(OUTPUT_C)];
    while (std::fread(x, 1, sizeof x, stdin) == sizeof x) {
        dense(head, x, y);
        std::fwrite(y, 1, sizeof y, stdout);
    }
    return 0;
}
"""


def tiny_net():
    """A convolution, a depthwise one with strides, a matrix product; its scores are integers too."""
    keras.utils.set_random_seed(8)
    image = keras.Input((7, 6, 2), name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="conv")(image)
    x = layers.ReLU(6.0, name="deep_relu")(layers.DepthwiseConv2D(3, 2, padding="same", name="deep")(x))
    model = keras.Model(image, layers.Dense(3, name="head")(layers.Flatten(name="flat")(x)), name="tiny")
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_output=True)
    q_model = qdq.quantize_model(with_biases(model), quantization_spec=spec, target="litert")
    images = np.random.default_rng(0).normal(size=(64, 7, 6, 2)).astype(np.float32)
    qdq.calibrate(q_model, images, verbose=False)
    return q_model, images


def compile_program(folder, text, compiler=COMPILER, standard="c99"):
    """Compile a program with the header of the folder; every warning is an error."""
    source, program = folder / ("main.cc" if "++" in standard else "main.c"), folder / "program"
    source.write_text(text)
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]
    flags += ["-Wno-unused-variable"] if "++" in standard else []  # of arrays that a program does not read
    finished = subprocess.run(
        [compiler, *flags, source, "-o", program], capture_output=True, text=True, check=False, cwd=folder
    )
    assert finished.returncode == 0, finished.stderr
    return program


def test_a_c_program_computes_the_model_from_the_header_alone(tmp_path):
    q_model, images = tiny_net()
    qdq.files.save_firmware(q_model, tmp_path / "model.npz", c_header=tmp_path / "weights.h")
    wanted = interpreter.run(tmp_path / "model.npz", {"image": images}, fixed_point=True)

    program = compile_program(tmp_path, PROGRAM.replace("TINY_DEEP_QUANTIZED", "TINY_DEEP_RELU_QUANTIZED"))

    given = wanted["image/quantized"].tobytes()
    found = subprocess.run([program], input=given, capture_output=True, check=True).stdout
    scores = np.frombuffer(found, np.int8).reshape(64, 3)
    np.testing.assert_array_equal(scores, wanted["head/quantized"])
    assert len(np.unique(scores)) > 20


@pytest.mark.parametrize("name", NETS)
def test_every_header_compiles_and_holds_the_arrays(name, tmp_path):
    qdq.files.save_firmware(calibrated(name, "litert"), tmp_path / "model.npz", c_header=tmp_path / "weights.h")
    held = {key: value for key, value in interpreter.read(tmp_path / "model.npz").items() if key != "model.json"}
    prefix = name.removesuffix("_net")
    names = [f"{prefix}_{key.replace('/', '_').replace('#', '_')}" for key in held]
    lines = "".join(
        f"    total = 0; for (unsigned i = 0; i < sizeof {n} / sizeof *{n}; i++) total += {n}[i] * (i % 7 + 1.0);\n"
        '    printf("%.17g\\n", total);\n'
        for n in names
    )

    program = compile_program(
        tmp_path,
        f'#include <stdio.h>\n#include "weights.h"\nint main(void)\n{{\n    double total;\n{lines}    return 0;\n}}\n',
    )

    found = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    for total, values in zip(found, held.values(), strict=True):
        flat = values.ravel().astype(np.float64)
        assert np.isclose(float(total), (flat * (np.arange(flat.size) % 7 + 1)).sum(), rtol=1e-12, atol=0)


def test_names_of_any_kind_become_names_of_c(tmp_path):
    keras.utils.set_random_seed(9)
    image = keras.Input((4, 4, 1), name="8 bit*")
    x = layers.Conv2D(2, 1, name="a b")(image)
    x = layers.Conv2D(2, 1, name="a_b")(x)
    x = layers.Conv2D(2, 1, name='int *; int main; "?')(x)
    model = keras.Model(image, layers.Conv2D(1, 1, name="größe")(x), name="3 ?? nets")
    q_model = qdq.quantize_model(model, target="litert")
    qdq.calibrate(q_model, np.ones((2, 4, 4, 1), np.float32), verbose=False)
    qdq.files.save_firmware(q_model, tmp_path / "model.npz", c_header=tmp_path / "weights.h")

    text = (tmp_path / "weights.h").read_text(encoding="utf-8")
    compile_program(tmp_path, '#include "weights.h"\nint main(void) { return m3_nets_a_b_bias[0] * 0; }\n')
    assert "m3_nets_a_b_bias[2]" in text
    assert "m3_nets_a_b_bias_2[2]" in text
    assert text.isascii()


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_the_cpp_of_the_how_to_computes_a_layer(tmp_path):
    q_model, images = tiny_net()
    qdq.files.save_firmware(q_model, tmp_path / "model.npz", c_header=tmp_path / "weights.h")
    wanted = interpreter.run(tmp_path / "model.npz", {"image": images}, fixed_point=True)
    page = (ROOT / "docs" / "howto" / "firmware.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```cpp\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    program = block + CPP_MAIN

    program = compile_program(tmp_path, program, "c++", "c++11")

    given = wanted["deep_relu/quantized"].tobytes()
    found = subprocess.run([program], input=given, capture_output=True, check=True).stdout
    np.testing.assert_array_equal(np.frombuffer(found, np.int8).reshape(64, 3), wanted["head/quantized"])
