"""The user's specification for a whole model: which layers, inputs, weights and outputs to quantize."""

from __future__ import annotations

import dataclasses
import html
import importlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any, Literal, get_args

from qdq_workbench._documents import read_document
from qdq_workbench._files import write_text
from qdq_workbench._numbers import whole
from qdq_workbench.errors import SpecError, nearest_names
from qdq_workbench.spec.name_patterns import name_matcher
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig, QuantizeConfig

Match = Literal["exact", "glob", "regex"]
_MATCHES = get_args(Match)
_FORMAT = "qdq-workbench/quantization-spec"
_VERSION = 1


@dataclasses.dataclass
class LayerConfig:
    """One entry of a `QuantizationSpec`.

    Args:
        name: Name, path or class of the layers that the entry selects.
        is_keras_class: Whether `name` is a layer class such as `Conv2D` rather than a layer's name.
        quantize_input: Whether the inputs get Q/DQ pairs.
        quantize_weight: Whether the weights are quantized; without effect on layers without weights, which the plan's
            reason mentions if the entry names one layer.
        quantization_index: Which inputs get pairs, counted from 0; None for all but masks and initial states.
        quantize_output: Whether the output gets a Q/DQ pair that all its readers share.
        quantize_config: The layer's own quantizers, a `LayerQuantizeConfig` or `QuantizeConfig`; None for the
            target's.
        match: How `name` is compared: "exact", "glob" (`block*_conv`) or "regex" (whole name).

    Example:
        >>> spec = QuantizationSpec()
        >>> _ = spec.add("block*_conv", quantize_input=False, match="glob")
        >>> entry = spec.layers[0]
        >>> isinstance(entry, LayerConfig), entry.quantize_weight, entry.quantization_index
        (True, True, None)
    """

    name: str
    is_keras_class: bool = False
    quantize_input: bool = True
    quantize_weight: bool = True
    quantization_index: list[int] | None = None
    quantize_output: bool = False
    quantize_config: Any = None
    match: Match = "exact"

    @property
    def label(self) -> str:
        """The entry in messages, such as `class 'Conv2D'` or `'conv_1'`."""
        prefix = "class " if self.is_keras_class else ""
        return f"{prefix}{self.name!r}" + ("" if self.match == "exact" else f" ({self.match})")


class QuantizationSpec:
    """Which layers to quantize, by name, by class or by pattern.

    Entries by name take precedence over entries by class, and both over custom insertion cases and defaults. If two
    entries name one layer, the later one wins and the plan records which one it replaced.

    Example:
        >>> spec = QuantizationSpec()
        >>> spec.add("conv_1")
        >>> spec.add("Add", is_keras_class=True, quantization_index=[1])
        >>> spec.add(["dense", "dense_1"], quantize_weight=[True, False])
        >>> [entry.name for entry in spec.layers]
        ['conv_1', 'Add', 'dense', 'dense_1']
    """

    def __init__(self) -> None:
        self.layers: list[LayerConfig] = []

    def add(
        self,
        name: str | Sequence[str],
        is_keras_class: bool | Sequence[bool] = False,
        quantize_input: bool | Sequence[bool] = True,
        quantize_weight: bool | Sequence[bool] = True,
        quantization_index: Sequence[int] | Sequence[Sequence[int] | None] | None = None,
        *,
        quantize_output: bool | Sequence[bool] = False,
        quantize_config: Any = None,
        match: str | Sequence[str] = "exact",
    ) -> None:
        """Add an entry, or one per name.

        With a list or tuple of names, every other argument is one value for all of them, or a sequence of the
        same length. One list of integers as `quantization_index` applies to every name.

        Args:
            name: Layer name, path (`backbone/conv`) or class, or several of them.
            is_keras_class: Whether `name` is a class.
            quantize_input: Whether the inputs get Q/DQ pairs. With `quantize_weight=False` as well the layer
                stays in float.
            quantize_weight: Whether the weights are quantized.
            quantization_index: Which inputs get pairs; None for all but masks and initial states.
            quantize_output: Whether the output gets a pair.
            quantize_config: The layer's own quantizers: a `LayerQuantizeConfig`, or a `QuantizeConfig`.
            match: "exact", "glob" or "regex".

        Raises:
            SpecError: If a value has the wrong type, a sequence another length than `name`, or a regular expression
                cannot be parsed or may run practically forever.
        """
        names = [name] if isinstance(name, str) else name
        if not isinstance(names, (list, tuple)) or not names:
            raise SpecError(f"name must be a string, or a non-empty list or tuple of strings. Received: name={name!r}")
        several = not isinstance(name, str)
        count = len(names)
        columns = {
            "name": list(names),
            "is_keras_class": _spread("is_keras_class", is_keras_class, count, several),
            "quantize_input": _spread("quantize_input", quantize_input, count, several),
            "quantize_weight": _spread("quantize_weight", quantize_weight, count, several),
            "quantization_index": _spread_indices(quantization_index, count, several),
            "quantize_output": _spread("quantize_output", quantize_output, count, several),
            "quantize_config": _spread("quantize_config", quantize_config, count, several),
            "match": _spread("match", match, count, several),
        }
        rows = zip(*columns.values(), strict=True)
        entries = [LayerConfig(**dict(zip(columns, row, strict=True))) for row in rows]
        # All before the first is added, so that an error leaves the specification as it was.
        for entry in entries:
            _check_entry(entry)
        self.layers.extend(entries)

    def copy(self) -> QuantizationSpec:
        """Return a spec with copies of the entries."""
        duplicate = QuantizationSpec()
        duplicate.layers = [_copy_entry(entry) for entry in self.layers]
        return duplicate

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as a JSON-compatible dictionary."""
        entries = []
        for entry in self.layers:
            fields = {key: value for key, value in vars(entry).items() if value is not None}
            if entry.quantize_config is not None:
                fields["quantize_config"] = config_to_dict(entry.quantize_config)
            entries.append(fields)
        return {"format": _FORMAT, "version": _VERSION, "layers": entries}

    @classmethod
    def from_dict(cls, data: Any) -> QuantizationSpec:
        """Rebuild a spec from `to_dict`, checking every field.

        Args:
            data: The dictionary of `to_dict`, or the content of a spec file.

        Raises:
            SpecError: If the dictionary is not a spec, or a field is unknown or has the wrong type.
        """
        if not isinstance(data, dict) or not isinstance(data.get("layers"), list):
            raise SpecError(
                'A quantization spec is a mapping with a list called "layers", such as '
                '{"layers": [{"name": "head", "quantize_input": false, "quantize_weight": false}]}; '
                "QuantizationSpec.save writes one. "
                f"Received: {type(data).__name__} {_shorten(data)}"
            )
        if data.get("version", _VERSION) != _VERSION or data.get("format", _FORMAT) != _FORMAT:
            raise SpecError(
                f"The file is not a spec that this version reads: expected format={_FORMAT!r}, version={_VERSION}. "
                f"Received: format={data.get('format')!r}, version={data.get('version')!r}"
            )
        spec = cls()
        for position, fields in enumerate(data["layers"]):
            spec.layers.append(_entry_from_dict(fields, position))
        return spec

    def save(self, path: str | pathlib.Path) -> None:
        """Write the spec to a file, atomically.

        Args:
            path: File name ending in `.yaml`, `.yml` or `.json`.

        Raises:
            OutputPathError: If the file cannot be written.
            SpecError: If the file name has another suffix.
        """
        if _suffix(path) == ".json":
            text = json.dumps(self.to_dict(), indent=2) + "\n"
        else:
            import yaml

            text = yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)
        write_text(path, text)

    @classmethod
    def load(cls, path: str | pathlib.Path) -> QuantizationSpec:
        """Read a spec from a YAML or JSON file; YAML is read with the safe loader only.

        Args:
            path: File name ending in `.yaml`, `.yml` or `.json`.

        Raises:
            SpecError: If the file cannot be parsed or does not hold a spec.
            FileAccessError: If the file cannot be read.
        """
        syntax: Literal["JSON", "YAML"] = "JSON" if _suffix(path) == ".json" else "YAML"

        def build(data: Any) -> QuantizationSpec:
            try:
                return cls.from_dict(data)
            except SpecError as error:
                raise SpecError(f"{path}: {error}") from error

        return read_document(
            path, build, what="quantization spec", made_by="QuantizationSpec.save", error=SpecError, syntax=syntax
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuantizationSpec) and self.layers == other.layers

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.layers)

    def __bool__(self) -> bool:
        # An empty specification has length 0; `spec or other` must not replace it.
        return True

    def __repr__(self) -> str:
        lines = "".join(f"\n  {entry}" for entry in self.layers)
        return f"QuantizationSpec with {len(self.layers)} entries{':' if lines else ''}{lines}"

    def _repr_html_(self) -> str:
        columns = [field.name for field in dataclasses.fields(LayerConfig)]
        head = "".join(f"<th>{column}</th>" for column in columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(getattr(entry, column)))}</td>" for column in columns) + "</tr>"
            for entry in self.layers
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _spread(argument: str, value: Any, count: int, several: bool) -> list[Any]:
    """Return one value per name."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if not several:
        raise SpecError(
            f"{argument} must be a single value because name is a single string; pass a list of names to give each "
            f"its own value. Received: {argument}={value!r}"
        )
    if len(value) != count:
        raise SpecError(
            f"{argument} must be one value, or one per name: {count} names were given. "
            f"Received: {argument}={value!r} with {len(value)} values"
        )
    return list(value)


def _spread_indices(value: Any, count: int, several: bool) -> list[Any]:
    """Return one index list per name; a list of integers applies to every name."""
    if value is None:
        return [None] * count
    if not isinstance(value, (list, tuple)):
        raise SpecError(
            "quantization_index must be a list of integers such as [0, 1], or None for all inputs. "
            f"Received: quantization_index={value!r}"
        )
    value = [whole(item) for item in value]
    # Also if it is as long as the list of names: a list per name holds lists.
    if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return [list(value) for _ in range(count)]
    spread = _spread("quantization_index", value, count, several)
    return [[whole(index) for index in item] if isinstance(item, (list, tuple)) else item for item in spread]


def _check_entry(entry: LayerConfig) -> None:
    """Raise an error unless every field has a valid value."""
    if not isinstance(entry.name, str) or not entry.name:
        raise SpecError(f"A layer name or class must be a non-empty string. Received: name={entry.name!r}")
    for field in ("is_keras_class", "quantize_input", "quantize_weight", "quantize_output"):
        if not isinstance(getattr(entry, field), bool):
            raise SpecError(f"{field} must be True or False. Received: {field}={getattr(entry, field)!r}")
    if entry.match not in _MATCHES:
        hint = "For a class set is_keras_class=True."
        if str(entry.match) != "class":
            hint = nearest_names(str(entry.match), _MATCHES)
        raise SpecError(f'match must be "exact", "glob" or "regex". {hint} Received: match={entry.match!r}')
    if entry.match == "regex":
        name_matcher(entry.name)
    config = entry.quantize_config
    if config is not None and not isinstance(config, (LayerQuantizeConfig, QuantizeConfig)):
        raise SpecError(
            'quantize_config must be a LayerQuantizeConfig such as LayerQuantizeConfig(weight={"num_bits": 4}), or an '
            f"instance of a subclass of QuantizeConfig. Received: quantize_config={config!r} for {entry.label}"
        )
    index = entry.quantization_index
    valid = index is None or (
        isinstance(index, list) and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in index)
    )
    if not valid:
        raise SpecError(
            "quantization_index must be a list of integers from 0 on, or None for all inputs. "
            f"Received: quantization_index={index!r} for {entry.label}"
        )


def _copy_entry(entry: LayerConfig) -> LayerConfig:
    index = entry.quantization_index
    return dataclasses.replace(entry, quantization_index=None if index is None else list(index))


def _entry_from_dict(fields: Any, position: int) -> LayerConfig:
    known = {field.name for field in dataclasses.fields(LayerConfig)}
    if not isinstance(fields, dict) or "name" not in fields:
        raise SpecError(f'Entry {position} must be a mapping with at least a "name". Received: {_shorten(fields)}')
    for key in fields:
        if key not in known:
            hint = nearest_names(str(key), known)
            raise SpecError(f"Entry {position} has a field that a spec does not know. {hint} Received: {key!r}")
    entry = LayerConfig(**fields)
    if entry.quantize_config is not None:
        entry.quantize_config = config_from_dict(entry.quantize_config, entry.label)
    _check_entry(entry)
    return entry


def config_from_dict(data: Any, label: str) -> Any:
    """Rebuild a `quantize_config`: plain settings, or the user's own class as Keras serialized it."""
    if not isinstance(data, dict) or "class_name" not in data:
        return LayerQuantizeConfig.from_config(data)
    # Not at the top: specifications work without loading Keras.
    from keras.saving import deserialize_keras_object

    try:
        if str(data.get("module", "")).startswith(f"{__package__.partition('.')[0]}."):
            importlib.import_module(data["module"])  # one of the library's own modules, not loaded yet
        return deserialize_keras_object(data)
    except (ImportError, TypeError, ValueError) as error:
        raise SpecError(
            f"The quantize_config of {label} is of a class that is not known here. Import the module that defines it, "
            "and register it with @keras.saving.register_keras_serializable() or load the spec inside "
            "keras.saving.custom_object_scope({...}). "
            f"Received: class {data['class_name']!r}"
        ) from error


def config_to_dict(config: Any) -> Any:
    """Return a `LayerQuantizeConfig` or `QuantizeConfig` as a JSON-compatible dictionary."""
    if isinstance(config, LayerQuantizeConfig):
        return config.get_config()
    from keras.saving import serialize_keras_object

    return serialize_keras_object(config)


def _suffix(path: str | pathlib.Path) -> str:
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in (".yaml", ".yml", ".json"):
        raise SpecError(f"A spec file ends in .yaml, .yml or .json. Received: path={str(path)!r}")
    return suffix


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
