"""Shared inputs of the commands: models, arrays, cases, specs and plans, by path or by name."""

from __future__ import annotations

import argparse
import math
import pathlib
from typing import TYPE_CHECKING, Any

from qdq_workbench._documents import parse_json, read_document
from qdq_workbench._files import as_path
from qdq_workbench.cli.own_code import safe_mode, with_options_named
from qdq_workbench.cli.widths import add_width_arguments, target_of
from qdq_workbench.errors import (
    DataError,
    FileAccessError,
    SpecError,
    UnsupportedModelError,
    first_line,
    nearest_names,
)
from qdq_workbench.placement.targets import target_names
from qdq_workbench.placement.targets.target import suggested_target

if TYPE_CHECKING:
    from qdq_workbench.spec.quantization_spec import QuantizationSpec

TARGETS = tuple(target_names())
DEFAULT_TARGET = "tensorrt"
_LABELS = ("y", "y_train", "y_test")
METHODS = ("minmax", "moving_average", "percentile", "mse", "mae", "lp", "kl", "entropy", "power_of_two")


def add_planning_arguments(parser: argparse.ArgumentParser, default_target: str = DEFAULT_TARGET) -> None:
    """Add the arguments of the placement: --spec, --case, --mode, --target (--help names its default) and widths."""
    parser.add_argument("--spec", metavar="FILE", help="a QuantizationSpec, YAML or JSON")
    parser.add_argument(
        "--case", action="append", default=[], metavar="CASE", help="a library case by class name; repeatable"
    )
    parser.add_argument(
        "--mode", choices=("full", "partial"), help="default: full; partial with --weights-alone, which needs no data"
    )
    parser.add_argument(
        "--weights-alone",
        metavar="BITS",
        type=positive,
        help="quantize the weights of matrix products and tables to so many bits and leave activations in float; "
        "entries of --spec overrule it",
    )
    parser.add_argument(
        "--block-size",
        metavar="N",
        type=int,
        help="with --weights-alone: how many values share a scale; 0 for one scale per channel; default: 32, "
        "for a target that takes no blocks 0",
    )
    add_width_arguments(parser)
    parser.add_argument("--target", type=target_name, choices=TARGETS, help=f"default: {default_target}")


def target_remark(options: argparse.Namespace) -> str:
    """Return a remark that the target is the default; "" if the user named one.

    It reads the options before `planning_arguments` sets the default target in them.
    """
    if options.target is not None:
        return ""
    return f" (the default, for NVIDIA GPUs; --target chooses another runtime: {', '.join(TARGETS)})"


def planning_arguments(options: argparse.Namespace, model: Any) -> dict[str, Any]:
    """Return the keyword arguments of `plan_placement` and `quantize_model`; set the options' target if it is None."""
    import qdq_workbench as qdq

    options.target = options.target or DEFAULT_TARGET
    target = target_of(options)
    spec = qdq.QuantizationSpec.load(options.spec) if options.spec else None
    if options.weights_alone is not None:
        spec = _with_weights_alone(spec, model, options)
    elif options.block_size is not None:
        raise SpecError(
            "--block-size is for --weights-alone; the blocks of single layers stand in the file of --spec, as "
            f"block_size of their weights. Received: --block-size {options.block_size}"
        )
    return {
        "quantization_mode": options.mode or ("full" if options.weights_alone is None else "partial"),
        "quantization_spec": spec,
        "custom_qdq_cases": load_cases(options.case) or None,
        "target": target,
    }


def _with_weights_alone(spec: QuantizationSpec | None, model: Any, options: argparse.Namespace) -> QuantizationSpec:
    """Return the spec of --weights-alone, overruled by the one of --spec."""
    import qdq_workbench as qdq
    from qdq_workbench.graph_builder import build_graph
    from qdq_workbench.placement.selectors import select

    blocks = qdq.targets.get_target(options.target).block_sizes
    usual = 32 if blocks else None
    # 0 on the command line is the library's None: one scale per channel.
    block_size = usual if options.block_size is None else options.block_size or None
    graph = build_graph(model)
    alone: QuantizationSpec = qdq.correction.weights_alone(graph, options.weights_alone, block_size)
    given = [] if spec is None else spec.layers
    # Entries by name, as all of --weights-alone are, overrule entries by class, wherever they stand.
    by_class = {
        node.layer
        for position, entry in enumerate(given)
        if entry.is_keras_class
        for node in select(graph, entry, f"spec[{position}]")
    }
    # Of several entries by name the last one wins, so those of --spec come last.
    alone.layers = [*(entry for entry in alone.layers if entry.name not in by_class), *given]
    return alone


def add_sample_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for samples to run a model on: --data, --labels, --plan, --batch-size, --steps."""
    parser.add_argument(
        "--data", metavar="FILE", required=True, help="model inputs, .npy or .npz; labels as y (or y_test) in the .npz"
    )
    parser.add_argument("--labels", metavar="FILE", help="labels, .npy, for inputs without")
    parser.add_argument("--plan", metavar="FILE", help="a plan for a float model, as `plan -o` writes it")
    parser.add_argument("--batch-size", type=positive, default=32, help="default: 32")
    parser.add_argument("--steps", type=positive, help="how many batches to read at most; default: all")


def load_cases(names: list[str]) -> list[Any]:
    """Return an instance of each library case; raise `SpecError` with the nearest names if there is no such case."""
    import qdq_workbench as qdq

    known = {name: getattr(qdq, name) for name in qdq.__all__ if name.endswith("QDQCase")}
    for name in names:
        if name not in known:
            raise SpecError(f"There is no library case of that name. {nearest_names(name, known)} Received: {name!r}")
    return [known[name]() for name in names]


def load_model(path: str) -> Any:
    """Return the Keras model of a .keras or .h5 file, uncompiled; HDF5 files of Keras 2 too.

    Raises:
        FileAccessError: If there is no such file.
        UnsupportedModelError: If Keras 3 can load no model from it; the message names the options that may help.
    """
    # A folder may be a SavedModel; the error of `qdq.load_model` says how to convert it.
    if not (path and as_path(path, FileAccessError).is_dir()):
        require_file(path)
    import qdq_workbench as qdq

    try:
        return qdq.load_model(path, safe_mode=safe_mode())
    except UnsupportedModelError as error:
        named = with_options_named(error)
        if named is None:
            raise
        raise named from error


def load_plan(path: str) -> Any:
    """Return the placement plan of a JSON file that `qdq-workbench plan -o` wrote.

    Raises:
        FileAccessError: If there is no such file.
        SpecError: If it is not JSON, or not a plan.
    """
    require_file(path)
    import qdq_workbench as qdq

    return read_document(
        path,
        qdq.PlacementPlan.from_dict,
        what="placement plan",
        made_by="qdq-workbench plan -o",
        error=SpecError,
    )


def load_arrays(path: str, part: str = "test", arrays: Any = None) -> Any:
    """Return the model input in a file, one array or a dictionary of arrays; labels (`y`) are ignored.

    It is a .npy file, or a .npz file with one array, with an array called `x`, with `x_train` and `x_test`, or with one
    array per model input under the input's name. `part` is "train" or "test"; `arrays` is the result of `read_arrays`
    for the file, None to read it here.
    """
    arrays = read_arrays(path) if arrays is None else arrays
    if not isinstance(arrays, dict):
        return arrays
    # The other part comes last: an archive may hold that one alone.
    for name in (f"x_{part}", "x", "x_train", "x_test"):
        if name in arrays:
            return arrays[name]
    # Of several arrays a model's inputs are picked by name, so labels among them do no harm.
    return _only_array({name: array for name, array in arrays.items() if name not in _LABELS} or arrays, arrays)


def load_samples(path: str, labels_path: str | None = None, part: str = "test", arrays: Any = None) -> tuple[Any, Any]:
    """Return model inputs and their labels, or None without labels.

    `path` is a .npy file of inputs, or a .npz file with `x` and `y`, with `x_<part>` and `y_<part>`, with those of the
    other part alone, or with one array per model input under the input's name, and `y`. `labels_path` is a .npy file of
    labels, or a .npz file with `y` or with one array, for inputs without labels. `arrays` is the result of
    `read_arrays` for `path`; None to read it here.
    """
    arrays = read_arrays(path) if arrays is None else arrays
    labels = None
    if isinstance(arrays, dict):
        suffix = next((end for end in (f"_{part}", "", "_train", "_test") if f"x{end}" in arrays), "")
        labels = arrays.pop(f"y{suffix}", None)
        inputs: Any = arrays.get(f"x{suffix}", arrays)
        if inputs is arrays:
            inputs = _only_array(arrays, arrays)
    else:
        inputs = arrays
    if labels_path is not None:
        if labels is not None:
            raise DataError(f"The data hold labels already; leave --labels out. Received: {path!r} and {labels_path!r}")
        labels = read_arrays(labels_path)
        if isinstance(labels, dict):
            if "y" not in labels and len(labels) != 1:
                raise DataError(
                    "A .npz file of labels must hold them as y, or be of one array. "
                    f"Received: {labels_path!r} with the arrays {', '.join(labels)}"
                )
            labels = labels["y"] if "y" in labels else next(iter(labels.values()))
    return inputs, labels


def _only_array(arrays: dict[str, Any], otherwise: Any) -> Any:
    return next(iter(arrays.values())) if len(arrays) == 1 else otherwise


def read_arrays(path: str) -> Any:
    """Return the array of a .npy file, or the arrays of a .npz file by name.

    Raises:
        FileAccessError: If there is no such file.
        DataError: If it is not a NumPy file, or holds Python objects.
    """
    require_file(path)
    import numpy as np

    try:
        with pathlib.Path(path).open("rb") as file:
            start = file.read(6)
            file.seek(0)
            # NumPy takes a file without these signatures for a pickle, and its error advises to allow pickles.
            arrays: Any = np.load(file, allow_pickle=False) if start.startswith((b"\x93NUMPY", b"PK")) else None
            if arrays is not None and not isinstance(arrays, np.ndarray):
                # Archives are read lazily, so while the file is open. Members that are no .npy files come as bytes.
                # Every look-up reads and decompresses the array again.
                arrays = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    except Exception as error:  # damaged files raise whatever NumPy, zipfile and zlib come upon
        raise DataError(
            f"NumPy cannot read the file as plain arrays: {first_line(error)}. Save it with numpy.save or numpy.savez. "
            f"Received: path={path!r}"
        ) from error
    if arrays is None:
        raise DataError(
            "The file holds no NumPy arrays. Save them with numpy.save (.npy) or numpy.savez (.npz). "
            f"Received: path={path!r}"
        )
    if isinstance(arrays, np.ndarray):
        return arrays
    if not arrays:
        raise DataError(f"The archive holds no array; make it with numpy.savez. Received: path={path!r}")
    return arrays


def settings_from(pairs: list[str]) -> dict[str, Any]:
    """Return the settings of `--set NAME=VALUE`, from texts such as "percentile=99.9".

    A value is parsed as JSON; if it is no JSON, it is a string.

    Raises:
        DataError: If a text has another form.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (equals and name.isidentifier()):
            raise DataError(f"A setting is written NAME=VALUE, such as percentile=99.9. Received: {pair!r}")
        try:
            settings[name] = parse_json(value)
        except ValueError:
            settings[name] = value
    return settings


def target_name(text: str) -> str:
    """Return the name of a target; an argparse type."""
    if text not in TARGETS:
        # argparse checks `type` before `choices`, whose message suggests nothing.
        raise argparse.ArgumentTypeError(f"there is no target {text!r}. {suggested_target(text)}")
    return text


def positive(text: str) -> int:
    """Return a text as a positive integer; an argparse type."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, received {text}")
    return value


def seed_number(text: str) -> int:
    """Return a text as a seed of Keras's random numbers; an argparse type."""
    # Half of what Keras takes: a training adds the number of the epoch.
    value = int(text) if text.isdecimal() else -1
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {2**31 - 1}, received {text}")
    return value


def positive_number(text: str) -> float:
    """Return a text as a positive finite number; an argparse type."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number, received {text}")
    return value


def share(text: str) -> float:
    """Return a text as a number between 0 and 1, both excluded; an argparse type."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, received {text}")
    return value


def _number(text: str) -> float:
    """Return a text as a number; NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def require_file(path: str) -> None:
    """Raise FileAccessError, with similar names in the folder, unless the path is a file."""
    file = as_path(path, FileAccessError)
    if not path:  # pathlib takes it for the current folder
        raise FileAccessError("The path is empty; give a file. Received: path=''")
    if file.is_dir():
        raise FileAccessError(f"The path is a folder; give a file. Received: path={path!r}")
    if not file.is_file():
        folder = file.parent if file.parent.is_dir() else pathlib.Path()
        hint = nearest_names(file.name, [entry.name for entry in folder.iterdir() if entry.is_file()])
        raise FileAccessError(f"There is no such file. {hint} Received: path={path!r}")
