"""`qdq-workbench finetune`: quantization-aware training of a quantized model."""

from __future__ import annotations

import argparse
import hashlib
import pathlib
from typing import TYPE_CHECKING, Any

from qdq_workbench._tables import text_table
from qdq_workbench.cli.inputs import (
    load_model,
    load_samples,
    positive,
    positive_number,
    read_arrays,
    seed_number,
    share,
)
from qdq_workbench.cli.losses import ChosenLoss, choose_loss, named_loss
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.cli.outputs import MODEL, check_apart, check_output
from qdq_workbench.cli.remarks import scale_remarks
from qdq_workbench.cli.training_data import check_samples
from qdq_workbench.errors import DataError, QDQError

if TYPE_CHECKING:
    from qdq_workbench.files import TrainingCheckpoint

_LEARNING_RATE = 1e-4


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="Q_MODEL", help="a quantized model, .keras")
    parser.add_argument(
        "--data", metavar="FILE", required=True, help="inputs and labels: .npz with x and y (or x_train and y_train)"
    )
    parser.add_argument("--labels", metavar="FILE", help="labels, .npy, for inputs without")
    held_out = parser.add_mutually_exclusive_group()
    held_out.add_argument(
        "--validation-data",
        metavar="FILE",
        help=".npz with x and y; default: x_test and y_test of --data, beside x_train or x",
    )
    held_out.add_argument(
        "--validation-split",
        metavar="SHARE",
        type=share,
        help="hold this share of --data out of the training, 0.1 say, chosen by --seed, and tell accuracy on it",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the trained model, .keras")
    parser.add_argument("--epochs", type=positive, default=1, help="default: 1")
    parser.add_argument("--batch-size", type=positive, default=32, help="default: 32")
    parser.add_argument(
        "--learning-rate", type=positive_number, default=_LEARNING_RATE, help=f"default: {_LEARNING_RATE:g}"
    )
    parser.add_argument("--optimizer", default="adam", help="a Keras optimizer by name; default: adam")
    parser.add_argument(
        "--loss", help="a Keras loss by name; default: cross-entropy for classes, else mse; named in the output"
    )
    parser.add_argument("--seed", type=seed_number, default=0, help="of the order of the batches; default: 0")
    parser.add_argument("--checkpoint", metavar="FILE", help="written after every epoch; go on from it if it exists")


def _run(options: argparse.Namespace) -> Outcome:
    import keras
    import numpy as np

    from qdq_workbench._files import write_atomically
    from qdq_workbench.conversion.engine.quantized_model import check_quantized
    from qdq_workbench.conversion.engine.saving import check_hdf5

    check_output(options.output, MODEL)
    check_apart(options.output, options.checkpoint)
    q_model = check_quantized(load_model(options.model))
    # Before the training, because Keras cannot load some quantized models from HDF5 files.
    check_hdf5(q_model, options.output)
    x, y, test_part = _parts(options)
    if y is None:
        raise DataError(
            "Training needs labels: save a .npz file with x and y, or give --labels. "
            f"Received: data without labels in {options.data!r}"
        )
    check_samples(q_model, x, y, options.labels or options.data)
    remarks = scale_remarks(q_model, x, options.data)
    x, y, validation = _held_out(x, y, test_part, options)
    if validation is not None:
        check_samples(q_model, *validation, options.validation_data or options.data)
    keras.utils.set_random_seed(options.seed)
    checkpoint = _checkpoint(options)
    chosen = _loss(q_model, x, y, options)
    q_model.compile(_optimizer(options), chosen.loss, metrics=chosen.metrics)
    judged = validation or (x, y)
    in_float = _scores_in_float(q_model, judged)
    before = q_model.evaluate(*judged, verbose=0, return_dict=True)
    # A checkpoint is restored in there, not earlier: also on resumption `before` is of the model without training.
    history = _train(q_model, x, y, validation, checkpoint, options)
    after = q_model.evaluate(*judged, verbose=0, return_dict=True)
    figures = {
        "loss": chosen.name,
        "from_logits": chosen.from_logits,
        "data": "training" if validation is None else "validation",
        "float": in_float,
        "before": {name: float(value) for name, value in before.items()},
        "after": {name: float(value) for name, value in after.items()},
        "history": history,
    }
    if not np.isfinite([*after.values()]).all():
        text = (
            f"The training on {chosen.text} diverged, so nothing was written: use a lower --learning-rate, or another "
            "--loss."
        )
        return Outcome(text, {"path": None, **figures}, passed=False, remarks=remarks)
    write_atomically(options.output, q_model.save)
    shown = ", ".join(f"{name} {before[name]:.4f} -> {after[name]:.4f}" for name in after)
    text = f"Wrote {options.output}, trained on {chosen.text}: on {figures['data']} data {shown}"
    return Outcome(f"{text}\n{_table(figures)}", {"path": options.output, **figures}, remarks=remarks)


def _scores_in_float(q_model: Any, samples: tuple[Any, Any]) -> dict[str, float]:
    """Return loss and metrics of a model with its quantizers switched off."""
    with q_model.quantizers_off():
        found = q_model.evaluate(*samples, verbose=0, return_dict=True)
    return {name: float(value) for name, value in found.items()}


def _table(figures: dict[str, Any]) -> str:
    """Return a table of the figures of the float model, and of the quantized model before and after training."""
    names = list(figures["after"])
    rows = [
        (title, *(f"{figures[key][name]:.4f}" for name in names))
        for title, key in (
            ("float, before training", "float"),
            ("quantized, before training", "before"),
            ("quantized, after training", "after"),
        )
    ]
    table = text_table((f"on {figures['data']} data", *names), rows)
    if figures["data"] == "validation":
        return table
    return (
        f"{table}\nThese samples were trained on. --validation-data FILE or --validation-split 0.1 tells how the model "
        "does on others."
    )


def _checkpoint(options: argparse.Namespace) -> TrainingCheckpoint | None:
    """Return the checkpoint or None; it is tied to the model, the data and all settings except the number of epochs."""
    from qdq_workbench.files import TrainingCheckpoint

    if options.checkpoint is None:
        return None
    files = [options.model, options.data, *filter(None, (options.labels, options.validation_data))]
    names = (
        "labels",
        "validation_data",
        "validation_split",
        "batch_size",
        "learning_rate",
        "optimizer",
        "loss",
        "seed",
    )
    settings = {name: getattr(options, name) for name in names}
    return TrainingCheckpoint(options.checkpoint, [settings, [_digest(path) for path in files]])


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with pathlib.Path(path).open("rb") as file:
        while chunk := file.read(1 << 24):
            digest.update(chunk)
    return digest.hexdigest()


def _train(
    q_model: Any, x: Any, y: Any, validation: Any, checkpoint: TrainingCheckpoint | None, options: argparse.Namespace
) -> dict[str, list[float]]:
    """Train epoch by epoch, each with its own seed, so that a resumed training gives the same result."""
    import keras

    def stop(*_: Any) -> None:
        q_model.stop_training = True

    saved = None if checkpoint is None else checkpoint.restore(q_model)
    history: dict[str, list[float]] = {} if saved is None else saved["history"]
    # `fit` records one loss per epoch, so their number is that of the completed epochs.
    for epoch in range(len(history.get("loss", ())), options.epochs):
        keras.utils.set_random_seed(options.seed + epoch)
        done = q_model.fit(
            x,
            y,
            batch_size=options.batch_size,
            # The total number of epochs is for Keras's display, "Epoch 2/3"; `stop` ends this call after one.
            initial_epoch=epoch,
            epochs=options.epochs,
            validation_data=validation,
            callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=stop)],
            verbose=2,
        ).history
        for name, values in done.items():
            history.setdefault(name, []).extend(float(value) for value in values)
        if checkpoint is not None:
            checkpoint.save(q_model, {"history": history})
    return history


def _parts(options: argparse.Namespace) -> tuple[Any, Any, tuple[Any, Any] | None]:
    """Return inputs and labels to train on, and the test part beside them in the file; None for what is not there."""
    arrays = read_arrays(options.data)
    # A file of a test part alone is trained on, so nothing of it is left to validate on.
    has_both = isinstance(arrays, dict) and {"x_test", "y_test"} <= arrays.keys() and {"x", "x_train"} & arrays.keys()
    test_part = (arrays["x_test"], arrays["y_test"]) if has_both else None
    return *load_samples(options.data, options.labels, part="train", arrays=arrays), test_part


def _held_out(
    x: Any, y: Any, test_part: tuple[Any, Any] | None, options: argparse.Namespace
) -> tuple[Any, Any, tuple[Any, Any] | None]:
    """Return the inputs and the labels to train on, and the validation data or None."""
    import numpy as np

    if options.validation_split is None:
        return x, y, _validation(options) if options.validation_data else test_part
    order = np.random.default_rng(options.seed).permutation(len(y))
    count = round(options.validation_split * len(y))
    if not 0 < count < len(y):
        raise DataError(
            "The share leaves no sample to train on, or none to validate on. "
            f"Received: --validation-split {options.validation_split} of {len(y)} samples"
        )

    def part(places: Any) -> tuple[Any, Any]:
        return ({name: array[places] for name, array in x.items()} if isinstance(x, dict) else x[places]), y[places]

    return *part(order[count:]), part(order[:count])


def _validation(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the samples of --validation-data."""
    x, y = load_samples(options.validation_data, part="test")
    if y is None:
        raise DataError(f"Validation data need labels: a .npz file with x and y. Received: {options.validation_data!r}")
    return x, y


def _optimizer(options: argparse.Namespace) -> Any:
    import keras

    try:
        return keras.optimizers.get(
            {"class_name": options.optimizer, "config": {"learning_rate": options.learning_rate}}
        )
    except (ValueError, TypeError) as error:
        raise QDQError(f"Keras has no optimizer of that name. Received: {options.optimizer!r}") from error


def _loss(q_model: Any, x: Any, y: Any, options: argparse.Namespace) -> ChosenLoss:
    """Return the loss named by --loss, else the one that fits outputs and labels."""
    import numpy as np

    if len(q_model.outputs) != 1 and options.loss is None:
        raise DataError(
            f"A model with several outputs needs its loss named: give --loss. Received: {len(q_model.outputs)} outputs"
        )
    some = {name: array[:32] for name, array in x.items()} if isinstance(x, dict) else x[:32]
    if options.loss is not None:
        return named_loss(options.loss, q_model, some, np.asarray(y))
    return choose_loss(q_model, some, np.asarray(y), options.labels or options.data)


FINETUNE = Command("finetune", "Train a quantized model through its Q/DQ pairs.", _configure, _run)
