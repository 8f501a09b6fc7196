"""The part that all peers' workers share: prepare once, then take a turn whenever the benchmark asks for one.

A worker prints one line of JSON per request line on its standard input: `{"seconds": {name: seconds}}`. It needs
nothing but the standard library, NumPy and the peer's own packages.
"""

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS, WARM_UP = 4, 2
Calls = dict[str, Callable[[], object]]


def compiled(keras: Any, model: Any) -> Any:
    """Compile a model for training steps."""
    model.compile(keras.optimizers.SGD(1e-4), "sparse_categorical_crossentropy")
    return model


def cloned(keras: Any, model: Any) -> Any:
    """Copy a model the way Keras offers."""
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def step_of(model: Any, batch: int) -> Callable[[], object]:
    """Return a training step of a compiled model on random images.

    Args:
        model: The model.
        batch: Images per step.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    x = generator.normal(size=(batch, *model.input_shape[1:])).astype("float32")
    return functools.partial(model.train_on_batch, x, generator.integers(0, 10, batch))


def beside_float(
    keras: Any, source: Any, batch: int, convert: Callable[[], Any], title: str = "convert"
) -> tuple[Calls, Calls]:
    """Return what is measured of a package that converts models: steps beside float ones, and the conversion.

    Args:
        keras: The package's Keras.
        source: The float model.
        batch: Images per step.
        convert: Returns the source converted.
        title: What the table calls the conversion.
    """
    models = {
        "float": keras.models.clone_model(source),
        "float again": keras.models.clone_model(source),
        "quantized": convert(),
    }
    steps = {label: step_of(compiled(keras, model), batch) for label, model in models.items()}
    return steps, {"clone": lambda: cloned(keras, source), title: convert}


def serve(prepare: Callable[[str, int], tuple[Calls, Calls]]) -> None:
    """Answer requests until the input ends.

    Args:
        prepare: Given a network and a batch size returns the steps, measured several times per turn, and the
            conversions, measured once per turn.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the packages print is no answer
    try:
        steps, conversions = prepare(sys.argv[1], int(sys.argv[2]))
        for call in steps.values():
            for _ in range(WARM_UP):
                call()
        for call in conversions.values():
            call()
    except Exception as error:  # noqa: BLE001 - a peer that fails is a result
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}), file=answers, flush=True)
        return
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for _ in sys.stdin:
        seconds = {}
        for calls, count in ((steps, STEPS), (conversions, 1)):
            for name, call in calls.items():
                started = time.perf_counter()
                for _ in range(count):
                    call()
                seconds[name] = (time.perf_counter() - started) / count
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)
