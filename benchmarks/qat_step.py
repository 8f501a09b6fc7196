"""Cost of a training step of the quantized model, as a ratio to the float model's, in one run.

    python benchmarks/qat_step.py [resnet8 mobilenet_v2 resnet50] [--batches 16 64] [--size 64] [--threads 1]
        [--jit] [--policy mixed_float16]

"float again" is the same float model a second time: how far it is from 1 is the noise of the machine.
"""

import functools

import keras
import numpy as np
import tensorflow as tf
from networks import APPLICATIONS, SIZE, application, arguments_for, chosen, resnet8
from processor_time import print_both

import qdq_workbench as qdq

ROUNDS, STEPS, WARM_UP = 7, 4, 3
BATCHES = {"resnet8": (32, 128), "mobilenet_v2": (16,), "resnet50": (16,)}


def compiled(model: keras.Model, *, jit: bool) -> keras.Model:
    """Compile a model for the measurement."""
    model.compile(keras.optimizers.SGD(1e-4), "sparse_categorical_crossentropy", jit_compile=jit)
    return model


def with_learned_steps(source: keras.Model) -> qdq.QuantizationSpec:
    """Return what the defaults are, with steps of the layers' inputs that the optimizer learns (LSQ)."""
    spec = qdq.QuantizationSpec()
    plan = qdq.plan_placement(source, target="onnxruntime")
    learned = qdq.LayerQuantizeConfig(activation={"quantizer": "lsq"})
    for layer in dict.fromkeys(placement.layer for placement in plan.placements if placement.site == "input"):
        weight = plan.for_layer(layer).quantize_weight
        indices = plan.for_layer(layer).input_indices
        spec.add(layer, quantize_weight=weight, quantization_index=list(indices), quantize_config=learned)
    return spec


def measure(name: str, batch: int, size: int, how: str = "", *, jit: bool = False) -> None:
    """Print the ratios for one network, batch size and, for those of keras.applications, image size."""
    generator = np.random.default_rng(0)
    source = application(APPLICATIONS[name], size) if name in APPLICATIONS else resnet8()
    x = generator.normal(size=(batch, *source.input_shape[1:])).astype("float32")
    y = generator.integers(0, 10, batch)
    frozen = qdq.quantize_model(source, target="onnxruntime")
    qdq.calibrate(frozen, x, verbose=False, freeze=True)
    moving = qdq.quantize_model(source, target="onnxruntime")
    qdq.calibrate(moving, x, verbose=False, freeze=False)
    learned = qdq.quantize_model(source, quantization_spec=with_learned_steps(source), target="onnxruntime")
    qdq.calibrate(learned, x, verbose=False)
    models = {
        "float": compiled(keras.models.clone_model(source), jit=jit),
        "float again": compiled(keras.models.clone_model(source), jit=jit),
        "quantized, ranges frozen": compiled(frozen, jit=jit),
        "quantized, moving average": compiled(moving, jit=jit),
        "quantized, learned steps": compiled(learned, jit=jit),
    }
    steps = {key: functools.partial(model.train_on_batch, x, y) for key, model in models.items()}
    for step in steps.values():
        for _ in range(WARM_UP):
            step()
    images = f"{size}x{size}, " if name in APPLICATIONS and size != SIZE else ""
    print_both(f"{name}, {images}batch {batch}{how}, training step", steps, "float", ROUNDS, STEPS)


def main() -> None:
    """Measure the networks named on the command line, or all of them."""
    parser = arguments_for(__doc__)
    parser.add_argument("--batches", type=int, nargs="+", help="images per step; by default what the table has")
    parser.add_argument("--size", type=int, default=SIZE, help="image size of the networks of keras.applications")
    parser.add_argument("--threads", type=int, help="threads of TensorFlow; by default as many as there are processors")
    parser.add_argument("--jit", action="store_true", help="compile the steps by XLA")
    parser.add_argument("--policy", help="a dtype policy of Keras, such as mixed_float16")
    options = parser.parse_args()
    if options.threads:
        tf.config.threading.set_intra_op_parallelism_threads(options.threads)
        tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    if options.policy:
        keras.config.set_dtype_policy(options.policy)
    settings = (options.threads and f"threads {options.threads}", options.jit and "jit_compile", options.policy)
    how = "".join(f", {setting}" for setting in settings if setting)
    for name in chosen(options):
        for batch in options.batches or BATCHES[name]:
            measure(name, batch, options.size, how, jit=options.jit)


if __name__ == "__main__":
    main()
