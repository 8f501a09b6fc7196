"""The corrections that a bench offers, as a table: what each does, which settings it has, and what it goes with."""

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
        label: What the pane says.
        default: Its value where none is given; None where the correction chooses.
        choices: Its values, where there are few.
        least: The least number that makes sense.
        help: What it is, in a sentence.
        rare: Whether it is left to code.
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
        title: What the pane says.
        purpose: What it does, in a sentence.
        of_float: Whether it corrects the float model, so that the ranges are found anew behind it; else it corrects
            the quantized model.
        reads_data: Whether it needs samples of its own; all need those of the calibration where the ranges are found
            anew.
        settings: What can be set.
        clashes: What it is not to be combined with, by name, with the reason.
        repeats: Whether it can be done again, as behind further training.
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
        """Return the given settings, with the defaults of those that are always passed.

        Args:
            given: Settings by name.

        Raises:
            BenchError: If one is not known.
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
    """A correction that weights went through, with everything that is needed to do it again.

    Args:
        name: Its name.
        settings: What it was given.
        calibration: How the ranges were found: method, steps, batch size, and settings of the method.
        data: What the samples are: "array", "list" or "dict" of arrays, "dataset" of TensorFlow, or another "stream".
        metric: The metric of the scores; empty where nothing was scored.
        before: The score of the weights before.
        after: The score of the corrected weights.
        trained: Whether the weights had been fine-tuned before.
        report: What it did, in lines.
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
        """What the table says of it."""
        return BY_NAME[self.name]

    @property
    def gain(self) -> float | None:
        """By how much the metric changed; None where it was not scored."""
        values = [None if scores is None else scores.metrics.get(self.metric) for scores in (self.before, self.after)]
        return None if values[0] is None or values[1] is None else values[1] - values[0]

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON-compatible dictionary."""
        return dataclasses.asdict(
            dataclasses.replace(self, settings=dict(self.settings), calibration=dict(self.calibration))
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Applied:
        """Rebuild it from `to_dict`.

        Args:
            data: What `to_dict` returned.

        Raises:
            BenchError: If there is no such correction.
        """
        if data["name"] not in BY_NAME or data["data"] not in _KINDS:
            raise BenchError(
                f"The bench's file names a correction that this version does not know. Known: {', '.join(BY_NAME)}. "
                f"Received: name={data['name']!r}, data={data['data']!r}"
            )
        scores = {key: None if data[key] is None else Scores(**data[key]) for key in ("before", "after")}
        BY_NAME[data["name"]].checked(data["settings"])
        if not all(map(str.isidentifier, data["calibration"])):  # they become code
            raise BenchError(f"These are no settings of a calibration. Received: {sorted(data['calibration'])}")
        return cls(**{**data, **scores})


def why_not(correction: Correction, applied: Sequence[Applied]) -> str:
    """Return why a correction cannot follow others; empty where it can.

    Args:
        correction: The correction.
        applied: What the weights went through.
    """
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
