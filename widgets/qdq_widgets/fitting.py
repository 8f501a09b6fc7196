"""Fine-tuning and scoring: plain Keras `compile`, `fit` and `evaluate`, with a stop and live curves."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import qdq_workbench as qdq
from qdq_widgets.background import Job
from qdq_widgets.curves import Scores, TrainingRun
from qdq_widgets.data import batch_count, fit_arguments, names_misfits
from qdq_widgets.errors import BenchError, BenchStoppedError

DEFAULT_RATE = 1e-4
_REDRAW_SECONDS = 0.25


class TrainingSetup:
    """Compiles models with the user's loss, optimizer and metrics, else with loss and metrics of the float model.

    Args:
        model: The float model; only read.
        loss: Loss, by name or object.
        optimizer: Optimizer, by name or object; None for Adam with a learning rate of 1e-4, small for fine-tuning.
        metrics: Metrics, as `compile` takes them.
    """

    def __init__(self, model: Any, loss: Any = None, optimizer: Any = None, metrics: Any = None) -> None:
        self._model = model
        self.loss, self.optimizer, self.metrics = loss, optimizer, metrics

    @property
    def knows_loss(self) -> bool:
        """Whether a loss was given, or the float model is compiled with one."""
        return self.loss is not None or bool(self._compiled_with().get("loss"))

    @property
    def usual_rate(self) -> float | None:
        """The learning rate if none is given; None for a schedule, or an optimizer given by name."""
        if self.optimizer is None:
            return DEFAULT_RATE
        if isinstance(self.optimizer, str):
            return None
        rate = self.optimizer.get_config().get("learning_rate")
        return float(rate) if isinstance(rate, (int, float)) else None

    def compile(self, q_model: Any, learning_rate: float | None = None) -> None:
        """Compile a model with an optimizer of its own, whose learning rate stays if None is given."""
        import keras

        loss, metrics = self.loss_and_metrics()
        optimizer = self.optimizer
        if optimizer is None:
            optimizer = keras.optimizers.Adam(DEFAULT_RATE if learning_rate is None else learning_rate)
        elif isinstance(optimizer, str):
            optimizer = keras.optimizers.get(optimizer)
            if learning_rate is not None:
                optimizer.learning_rate = learning_rate
        else:
            # A new one: an optimizer has variables for the weights of the one model that it trains. An optimizer with a
            # schedule takes no other rate once it is made.
            config = optimizer.get_config()
            in_config = learning_rate is not None and "learning_rate" in config
            rate = {"learning_rate": learning_rate} if in_config else {}
            optimizer = type(optimizer).from_config({**config, **rate})
            if learning_rate is not None and not in_config:  # such as one that scales the loss of another one
                optimizer.learning_rate = learning_rate
        q_model.compile(optimizer=optimizer, loss=loss, metrics=_copies(metrics))

    def to_dict(self) -> tuple[dict[str, Any], list[str]]:
        """Return the serialized loss, optimizer and metrics, and the names of those that cannot be restored."""
        import keras

        # With a loss of the user's nothing of the float model's compilation is used; see `loss_and_metrics`.
        config = {} if self.loss is not None else self._compiled_with()
        saved = {key: config[key] for key in ("loss", "metrics") if config.get(key)}
        lost = []
        for key in ("loss", "optimizer", "metrics"):
            value = getattr(self, key)
            if value is None:
                continue
            try:
                saved[key] = keras.saving.serialize_keras_object(value)
                keras.saving.deserialize_keras_object(saved[key])  # fails for a user's unregistered function
            except Exception:  # noqa: BLE001 - whatever an object of the user's raises
                saved.pop(key, None)
                lost.append(key)
        return saved, lost

    def compile_code(self, model_name: str, learning_rate: float | None = None) -> list[str]:
        """Return the Python that compiles `q_model`, with the optimizer's own learning rate if None is given.

        The user's objects are named by the arguments they were given as, each with a comment.
        """
        config = self._compiled_with() if self.loss is None else {"metrics": self.metrics}
        loss, metrics = self.loss, config.get("metrics") if self.metrics is None else self.metrics
        shown = repr(loss) if isinstance(loss, str) else "loss" if loss is not None else f"{model_name}.loss"
        parts, notes = [f"loss={shown}"], [_object_note("loss", loss)] * (shown == "loss")
        if metrics is not None:
            is_text = isinstance(metrics, (list, tuple)) and all(isinstance(metric, str) for metric in metrics)
            parts.append(f"metrics={list(metrics)!r}" if is_text else "metrics=metrics")
            notes += [] if is_text else [_object_note("metrics", metrics)]
        if self.optimizer is not None and not isinstance(self.optimizer, str):
            notes.append(_object_note("optimizer", self.optimizer))
        if self.optimizer is not None and learning_rate is None:
            given = repr(self.optimizer) if isinstance(self.optimizer, str) else "optimizer"
            return [*notes, f"q_model.compile({given}, {', '.join(parts)})"]
        rate = DEFAULT_RATE if learning_rate is None else float(learning_rate)
        if self.optimizer is None:
            made = f"keras.optimizers.Adam({rate!r})"
        elif isinstance(self.optimizer, str):
            identifier = {"class_name": self.optimizer, "config": {"learning_rate": rate}}
            made = f"keras.optimizers.get({identifier!r})"
        elif "learning_rate" not in self.optimizer.get_config():
            notes += ["optimizer = type(optimizer).from_config(optimizer.get_config())"]
            notes += [f"optimizer.learning_rate = {rate!r}"]
            made = "optimizer"
        else:  # with the optimizer's other settings, in an object of its own as in the bench
            made = f'type(optimizer).from_config({{**optimizer.get_config(), "learning_rate": {rate!r}}})'
        imports = ["import keras"] if made.startswith("keras.") else []
        return [*imports, *notes, f"q_model.compile({made}, {', '.join(parts)})"]

    def loss_and_metrics(self) -> tuple[Any, Any]:
        """Return the loss and the metrics that models are compiled with.

        Raises:
            BenchError: If no loss is known.
        """
        if self.loss is not None:
            return self.loss, self.metrics
        config = self._compiled_with()
        if not config.get("loss"):
            raise BenchError(
                "The bench does not know the loss: the model is not compiled. Say which: "
                "Workbench(model, loss='sparse_categorical_crossentropy', metrics=['accuracy']). Received: loss=None"
            )
        import keras

        metrics = self.metrics
        if metrics is None:
            metrics = keras.saving.deserialize_keras_object(config.get("metrics"))
        return keras.saving.deserialize_keras_object(config["loss"]), metrics

    def _compiled_with(self) -> dict[str, Any]:
        return (self._model.get_compile_config() or {}) if getattr(self._model, "compiled", False) else {}


def training_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return loss, optimizer and metrics from `TrainingSetup.to_dict` as arguments of `Workbench`.

    Raises:
        BenchError: If Keras cannot deserialize one of them.
    """
    import keras

    found = {}
    for key in ("loss", "optimizer", "metrics"):
        if key in data:
            try:
                found[key] = keras.saving.deserialize_keras_object(data[key])
            except (AttributeError, ImportError, KeyError, RecursionError, TypeError, ValueError) as error:
                raise BenchError(
                    f"The bench's {key} cannot be made again: {str(error).splitlines()[0] if str(error) else error!r}. "
                    f"Register classes and functions of your own with keras.saving.register_keras_serializable, or "
                    f"give it anew: Workbench.load(folder, {key}=...)."
                ) from error
    return found


def evaluate(
    q_model: Any,
    data: Any,
    batch_size: int,
    job: Job | None = None,
    *,
    quantized: bool = True,
    text: str = "scoring the model",
    part: tuple[float, float] = (0.0, 1.0),
) -> Scores:
    """Score a compiled model; without `quantized`, with all quantizers off, which scores the float model.

    The job reports the batches behind the text, as a part of its progress. A stop of it raises `BenchStoppedError`.
    """
    arguments = fit_arguments(data, "validation_data")
    if "y" in arguments:
        # Keras takes a batch size for arrays only.
        arguments["batch_size"] = batch_size
    callbacks = [] if job is None else [_scoring(job, batch_count(data, batch_size), text, part)]
    switched = contextlib.nullcontext() if quantized else q_model.quantizers_off()
    with switched, names_misfits(q_model, data, "validation_data"):
        logs = q_model.evaluate(**arguments, verbose=0, return_dict=True, callbacks=callbacks)
    return Scores.of_logs(logs)


def fine_tune(
    q_model: Any,
    run: TrainingRun,
    job: Job,
    on_run: Callable[[TrainingRun], None],
    *,
    epochs: int,
    train_data: Any,
    validation_data: Any,
    batch_size: int,
    checkpoint: qdq.files.TrainingCheckpoint | None = None,
) -> TrainingRun:
    """Train a compiled model in place, and return the finished or stopped run.

    `run` has the name of the run and the scores at its start; `on_run` gets it whenever it has grown, a few times a
    second at most. Every epoch is scored on `validation_data`, unless that is None. A checkpoint is written after every
    epoch; if its file exists, the training and the run go on from there.
    """
    arguments = fit_arguments(train_data, "train_data")
    if "y" in arguments:
        arguments["batch_size"] = batch_size
    if hasattr(arguments["x"], "element_spec"):
        arguments["shuffle"] = False  # a dataset shuffles itself; Keras warns about the argument
    start = run.epochs[-1] if run.epochs else 0.0
    saved = None if checkpoint is None else checkpoint.restore(q_model)
    begun = 0 if saved is None else int(saved["epochs"])
    if saved is not None:
        run = TrainingRun.from_dict({**saved["run"], "name": run.name})
        on_run(run)
    batches = batch_count(train_data, batch_size)
    watcher = _watcher(run, job, on_run, epochs, batches, validation_data, batch_size, start)
    saver = [] if checkpoint is None else [_saver(checkpoint, q_model, watcher, job)]
    if begun < epochs:
        with names_misfits(q_model, train_data, "train_data"):
            q_model.fit(**arguments, initial_epoch=begun, epochs=epochs, verbose=0, callbacks=[watcher, *saver])
    finished: TrainingRun = watcher.run.replace(state="stopped" if job.stop_requested else "done")
    on_run(finished)
    return finished


def _saver(checkpoint: qdq.files.TrainingCheckpoint, q_model: Any, watcher: Any, job: Job) -> Any:
    """Return the callback that writes a checkpoint after every epoch, with the run of a watcher in front of it."""
    import keras

    def save(epoch: int, logs: Any) -> None:  # noqa: ARG001 (Keras's signature)
        # An epoch that is stopped in its middle would count as a whole one.
        if not job.stop_requested:
            checkpoint.save(q_model, {"epochs": epoch + 1, "run": watcher.run.to_dict()})

    return keras.callbacks.LambdaCallback(on_epoch_end=save)


def training_identity(q_model: Any, train_data: Any, settings: Any) -> list[Any]:
    """Return what tells one training from others: plan, weights, data that are arrays, and settings."""
    import keras

    placements = [placement.to_dict() for placement in q_model.plan.placements]
    arrays = [part for part in keras.tree.flatten(train_data) if isinstance(part, np.ndarray)]
    # As text, because the configuration of an optimizer may hold what is not JSON.
    told = json.dumps(settings, sort_keys=True, default=str)
    return [placements, q_model.plan.target_object.to_dict(), list(q_model.trainable_variables), arrays, told]


def _watcher(
    run: TrainingRun,
    job: Job,
    on_run: Callable[[TrainingRun], None],
    epochs: int,
    batches: int | None,
    validation_data: Any,
    batch_size: int,
    start: float,
) -> Any:
    import keras

    class Watcher(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.run = run
            self._drawn = 0.0
            self._batch, self._epoch = 0, 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras's signature)
            self._epoch, self._batch = epoch, 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._batch = batch + 1
            if job.stop_requested:
                self.model.stop_training = True
            if time.monotonic() - self._drawn >= _REDRAW_SECONDS or job.stop_requested:
                self._grow(logs)
                self._drawn = time.monotonic()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            nonlocal batches
            # A generator has no length: its first epoch tells it.
            batches = self._batch
            self._grow(logs)
            if job.stop_requested or validation_data is None:
                return
            try:
                done = (epoch + 1) / epochs
                scores = evaluate(
                    self.model, validation_data, batch_size, job, text=f"scoring epoch {epoch + 1}", part=(done, done)
                )
            except BenchStoppedError:
                self.model.stop_training = True
                return
            self.run = self.run.replace(epochs=(*self.run.epochs, start + epoch + 1), scores=(*self.run.scores, scores))
            on_run(self.run)

        def _grow(self, logs: Any) -> None:
            done = self._epoch + (self._batch / batches if batches else 0.0)
            loss = float((logs or {}).get("loss", float("nan")))
            self.run = self.run.replace(loss_trace=(*self.run.loss_trace, (start + done, loss)))
            job.report(done / epochs, f"epoch {self._epoch + 1} of {epochs}, batch {self._batch}, loss {loss:.4f}")
            on_run(self.run)

    return Watcher()


def _object_note(name: str, value: Any) -> str:
    """Return the comment on an object that generated code names but does not make."""
    return f"# {name}: the {', '.join(_kinds(value))} of the bench; define it before these lines."


def _kinds(value: Any) -> Iterator[str]:
    """Yield the names of objects, of functions, and of what a float model's compilation holds as dictionaries."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _kinds(each)
    elif isinstance(value, Mapping) and "class_name" in value:
        # Of a function, Keras serializes the name as "config".
        config = value.get("config")
        yield config if isinstance(config, str) else str(value["class_name"])
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _kinds(each)
    else:
        yield value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)


def _scoring(job: Job, batches: int | None, text: str, part: tuple[float, float]) -> Any:
    """Return the callback that reports the batches of an evaluation, and ends it when the job is stopped."""
    import keras

    first, last = part

    class Scoring(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self._drawn = 0.0

        def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002 (Keras's signature)
            job.report(first if batches or first == last else None, text)

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras's signature)
            job.raise_if_stopped()
            if time.monotonic() - self._drawn < _REDRAW_SECONDS:
                return
            self._drawn, done = time.monotonic(), batch + 1
            if batches:
                job.report(first + (last - first) * done / batches, f"{text}, batch {done} of {batches}")
            else:
                job.report(first if first == last else None, f"{text}, batch {done}")

    return Scoring()


def _copies(metrics: Any) -> Any:
    """Return metrics with new objects: metric objects have state, which two models must not share."""
    if isinstance(metrics, (list, tuple)):
        return [_copies(metric) for metric in metrics]
    if isinstance(metrics, dict):
        return {name: _copies(metric) for name, metric in metrics.items()}
    if hasattr(metrics, "get_config") and hasattr(metrics, "from_config"):
        return type(metrics).from_config(metrics.get_config())
    return metrics
