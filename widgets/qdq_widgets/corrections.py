"""The corrections that a bench offers, as a table: purpose, settings, and which of them cannot be combined."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from qdq_widgets.curves import Scores
from qdq_widgets.errors import BenchError

SAMPLES, BATCH_SIZE = "samples", "batch_size"
_KINDS = ("array", "list", "dict", "dataset", "stream")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting that a pane offers.

    Args:
        name: The argument.
        label: Its label in the pane.
        default: Its default; None if the correction chooses.
        choices: The values to choose from; empty for other settings.
        least: The minimum of a number.
        help: What it is, in a sentence.
        rare: Whether only code can set it.
    """

    name: str
    label: str
    default: Any
    choices: tuple[Any, ...] = ()
    least: int = 1
    help: str = ""
    rare: bool = False


@dataclasses.dataclass(frozen=True)
class Correction:
    """A correction of weights without labels.

    Args:
        name: The function of `qdq_workbench.correction`.
        title: Its title in the pane.
        purpose: What it does, in a sentence.
        of_float: Whether it corrects the float model, which is then calibrated again; else it corrects the quantized
            model.
        reads_data: Whether it reads samples itself, apart from the calibration after it.
        settings: Its settings.
        clashes: The reasons against a combination, by name of the other correction.
        repeats: Whether it can be applied again, such as after further training.
    """

    name: str
    title: str
    purpose: str
    of_float: bool
    reads_data: bool
    settings: tuple[Setting, ...] = ()
    clashes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    repeats: bool = False

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings, completed with the defaults, without those that are None.

        Raises:
            BenchError: If a setting is unknown.
        """
        known = {setting.name: setting.default for setting in self.settings}
        unknown = sorted(given.keys() - known.keys())
        if unknown:
            raise BenchError(
                f"{self.name} has the settings {', '.join(known) or 'none at all'}. Received: {', '.join(unknown)}"
            )
        return {name: value for name, value in {**known, **given}.items() if value is not None}


_SAMPLES = Setting(
    SAMPLES, "Samples", 1024, help="How many samples to read at most, where the data are arrays or a dataset"
)
_ROUNDED = "The weights are rounded already."

CORRECTIONS: tuple[Correction, ...] = (
    Correction(
        "equalize_scales",
        "Scale equalization",
        "Equalizes the channels of a layer with those of the next one, so that no channel wastes a shared scale.",
        of_float=True,
        reads_data=False,
        settings=(Setting("method", "By", "ranges", ("ranges", "moments"), help="What is made equal"),),
    ),
    Correction(
        "smooth_scales",
        "Smoothing (SmoothQuant)",
        "Moves the spread of activation channels into the weights that read them; for Transformers above all.",
        of_float=True,
        reads_data=True,
        settings=(
            Setting("alpha", "Alpha", None, least=0, help="The weights' part of the spread, 0 to 1; empty to search"),
            _SAMPLES,
        ),
    ),
    Correction(
        "clip_weights",
        "Weight clipping",
        "Cuts the few largest weights where the rounding error of all others falls by more; at 4 bits and fewer.",
        of_float=True,
        reads_data=False,
        settings=(Setting("method", "Least", "mse", ("mse", "mae"), help="Which error the thresholds minimise"),),
    ),
    Correction(
        "correct_biases",
        "Bias correction",
        "Takes back the shift of every output's mean that rounding the weights causes, in the biases.",
        of_float=True,
        reads_data=True,
        settings=(_SAMPLES,),
    ),
    Correction(
        "gptq_weights",
        "GPTQ",
        "Rounds the matrices of Dense and EinsumDense row by row; rows behind make up for the errors. No training.",
        of_float=False,
        reads_data=True,
        settings=(
            Setting("damping", "Damping", 0.01, least=0, help="Added to the matrix of a layer's inputs, above 0"),
            Setting("activation_order", "largest inputs first", default=False),
            _SAMPLES,
        ),
    ),
    Correction(
        "learn_rounding",
        "Learned rounding",
        "Learns whether each weight is rounded down or up, so that layers compute what the float model's do (AdaRound, "
        "BRECQ, QDrop).",
        of_float=False,
        reads_data=True,
        settings=(
            Setting("granularity", "By", "block", ("block", "layer", "model"), help="What is learned together"),
            Setting("steps", "Steps", 1000, help="Steps of the optimizer per unit"),
            _SAMPLES,
            Setting(BATCH_SIZE, "Batch size", 32, help="Samples per step"),
            Setting("biases", "learn the biases too", default=True),
            Setting("drop", "Drop", None, least=0, help="Share of activations left in float meanwhile; empty: by bits"),
            Setting("learning_rate", "Rate", 0.01, least=0, rare=True),
            Setting("penalty", "Penalty", 20.0, least=0, rare=True),
            Setting("seed", "Seed", 0, least=0, rare=True),
        ),
        clashes={
            "correct_biases": "Corrected biases shift the float outputs on purpose, so those are no reference; the "
            "shift is learned here anyway. Undo the bias correction first.",
            "gptq_weights": _ROUNDED,
        },
    ),
    Correction(
        "estimate_statistics",
        "Statistics of normalizations",
        "Gives every batch normalization the mean and the variance of what it reads in the quantized model.",
        of_float=False,
        reads_data=True,
        settings=(_SAMPLES,),
        repeats=True,
    ),
)
"""In the order in which they follow each other."""

BY_NAME = {correction.name: correction for correction in CORRECTIONS}


@dataclasses.dataclass(frozen=True)
class Applied:
    """An applied correction, with everything that is needed to repeat it.

    Args:
        name: Its name.
        settings: Its settings.
        calibration: Arguments of the calibration: method, steps, batch size, and settings of the method.
        data: Kind of the samples: "array", "list" or "dict" of arrays, "dataset" of TensorFlow, or another "stream".
        metric: The metric of the scores; empty if nothing was scored.
        before: The scores of the weights before.
        after: The scores of the corrected weights.
        trained: Whether the weights had been fine-tuned before.
        report: The report of its changes, in lines.
    """

    name: str
    settings: Mapping[str, Any]
    calibration: Mapping[str, Any]
    data: str = "array"
    metric: str = ""
    before: Scores | None = None
    after: Scores | None = None
    trained: bool = False
    report: str = ""

    @property
    def correction(self) -> Correction:
        """Its entry in `CORRECTIONS`."""
        return BY_NAME[self.name]

    @property
    def gain(self) -> float | None:
        """The change of the metric; None if it was not scored before and after."""
        values = [None if scores is None else scores.metrics.get(self.metric) for scores in (self.before, self.after)]
        return None if values[0] is None or values[1] is None else values[1] - values[0]

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-compatible dictionary."""
        return dataclasses.asdict(
            dataclasses.replace(self, settings=dict(self.settings), calibration=dict(self.calibration))
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Applied:
        """Rebuild it from the dictionary of `to_dict`.

        Raises:
            BenchError: If the correction or a setting is unknown, or the calibration has no valid arguments.
        """
        if data["name"] not in BY_NAME or data["data"] not in _KINDS:
            raise BenchError(
                f"The bench's file names a correction that this version does not know. Known: {', '.join(BY_NAME)}. "
                f"Received: name={data['name']!r}, data={data['data']!r}"
            )
        scores = {key: None if data[key] is None else Scores(**data[key]) for key in ("before", "after")}
        # For its error: the names of settings become code.
        BY_NAME[data["name"]].checked(data["settings"])
        if not all(map(str.isidentifier, data["calibration"])):  # they become code
            raise BenchError(f"These are no settings of a calibration. Received: {sorted(data['calibration'])}")
        return cls(**{**data, **scores})


def why_not(correction: Correction, applied: Sequence[Applied]) -> str:
    """Return why a correction cannot follow those that were applied; empty if it can."""
    names = [each.name for each in applied]
    if correction.name in names and not correction.repeats:
        return "It was applied already; undo it first to do it with other settings."
    for name in names:
        if name in correction.clashes:
            return correction.clashes[name]
    order = list(BY_NAME)
    later = [name for name in names if order.index(name) > order.index(correction.name)]
    if not later:
        return ""
    if correction.name in BY_NAME[later[0]].clashes:
        return f"It is not to be combined with: {BY_NAME[later[0]].title}."
    return f"It comes before this step, which was done already: {BY_NAME[later[0]].title}. Undo that first."
