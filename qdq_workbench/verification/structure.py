"""Comparison of the quantizers in a file with the expected ones.

The expected structure comes from one of two sources:

* `read_structure` of the same model exported again: everything is compared, the exact codes in their layout, the axes,
  the source and the readers of each pair, and the float constants;
* `expected_structure` of encodings, which have a weight in its Keras layout only. There the counts of each integer
  under each scale are compared: they are invariant to transposition and reshape, but not to a wrong axis, scale, zero
  point or code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from qdq_workbench._fingerprints import bytes_digest
from qdq_workbench.export.encodings import BiasEncoding, Encoding, clip_bounds
from qdq_workbench.export.metadata import graph_digest
from qdq_workbench.verification.file_structure import (
    DequantizedConstant,
    FileStructure,
    QDQPair,
    layout_free_digest,
)
from qdq_workbench.verification.structure_reader import read_structure

__all__ = [
    "DequantizedConstant",
    "FileStructure",
    "QDQPair",
    "compare_structure",
    "differences_from_note",
    "different_ends",
    "expected_structure",
    "read_structure",
]


def expected_structure(
    activations: Mapping[str, Encoding],
    weights: Mapping[str, Encoding],
    biases: Mapping[str, BiasEncoding] | None = None,
) -> FileStructure:
    """Return the structure that a file exported with these encodings must have, as far as encodings determine it.

    Biases are by name `<layer>/bias`; None excludes them from the comparison.
    """
    return FileStructure(
        pairs={name: _expected_pair(name, encoding) for name, encoding in activations.items()},
        weights={name: _expected_weight(name, encoding) for name, encoding in weights.items()},
        biases=None if biases is None else {name: _expected_bias(name, item) for name, item in biases.items()},
    )


def _expected_pair(name: str, encoding: Encoding) -> QDQPair:
    bounds = clip_bounds(encoding)
    return QDQPair(
        name=name,
        scale=float(encoding.scale),
        zero_point=int(encoding.zero_point),
        dtype=str(encoding.dtype),
        bounds=None if bounds is None else (float(bounds[0]), float(bounds[1])),
    )


def _expected_weight(name: str, encoding: Encoding) -> DequantizedConstant:
    codes = np.asarray(encoding.codes).astype(encoding.dtype)
    axis = None if encoding.spec.axis is None else encoding.spec.axis % codes.ndim
    return DequantizedConstant(
        name=name,
        scale=_floats(encoding.scale),
        zero_point=tuple(int(value) for value in encoding.zero_point.reshape(-1)),
        dtype=str(encoding.dtype),
        digest=layout_free_digest(codes, encoding.scale, encoding.zero_point, axis, encoding.spec.block_size),
    )


def _expected_bias(name: str, encoding: BiasEncoding) -> DequantizedConstant:
    axis = 0 if encoding.scale.ndim else None
    zero = np.zeros(encoding.scale.shape, np.int32)
    return DequantizedConstant(
        name=name,
        scale=_floats(encoding.scale),
        zero_point=(0,) * encoding.scale.size,
        dtype="int32",
        digest=layout_free_digest(encoding.codes, encoding.scale, zero, axis),
        axis=axis,
        shape=encoding.codes.shape,
        codes_sha256=bytes_digest(encoding.codes),
        is_zero=not np.any(encoding.codes),
    )


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values.reshape(-1))


def compare_structure(expected: FileStructure | Mapping[str, Any], found: FileStructure) -> list[str]:
    """Return the differences between an expected structure, or its `to_dict`, and a found one, one sentence each."""
    if isinstance(expected, Mapping):
        expected = FileStructure.from_dict(expected)
    differences = [f"stray quantizer {stray}" for stray in found.strays if stray not in expected.strays]
    differences += _compare("pair", expected.pairs, found.pairs, _pair_differences)
    differences += _compare("weight", expected.weights, found.weights, _constant_differences)
    if expected.biases is not None:
        # TensorFlow omits the addition of a bias of zeros, so either side may lack it.
        wanted, held = (_without_zeros(biases or {}) for biases in (expected.biases, found.biases))
        differences += _compare("bias", wanted, held, _constant_differences)
    if expected.constants is not None:
        differences += _constants_differences(expected.constants, found.constants or {})
    return differences


def _without_zeros(biases: Mapping[str, DequantizedConstant]) -> dict[str, DequantizedConstant]:
    return {name: bias for name, bias in biases.items() if not bias.is_zero}


def _compare(
    kind: str, expected: Mapping[str, Any], found: Mapping[str, Any], differ: Callable[[Any, Any], list[str]]
) -> list[str]:
    missing = [f"{kind} {name!r} is missing" for name in expected if name not in found]
    added = [f"{kind} {name!r} was not expected" for name in found if name not in expected]
    differing = [
        f"{kind} {name!r}: {difference}"
        for name, item in expected.items()
        if name in found
        for difference in differ(item, found[name])
    ]
    return missing + added + differing


def _pair_differences(expected: QDQPair, found: QDQPair) -> list[str]:
    known = ["scale", "zero_point", "dtype", "bounds"]
    known += [field for field in ("source", "readers") if getattr(expected, field) is not None]
    return _field_differences(expected, found, known)


def _constant_differences(expected: DequantizedConstant, found: DequantizedConstant) -> list[str]:
    if expected.codes_sha256 is not None:
        fields = ["scale", "zero_point", "dtype", "axis", "block_size", "shape", "codes_sha256"]
        return _field_differences(expected, found, fields)
    differences = _field_differences(expected, found, ["dtype"])
    scales = [sorted(set(zip(item.scale, item.zero_point, strict=True))) for item in (expected, found)]
    if scales[0] != scales[1]:
        differences.append(_sentence("scales and zero points", *scales))
    elif expected.digest != found.digest:
        differences.append("the codes under its scales differ (changed codes or another axis)")
    return differences


def _constants_differences(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Compare constants by value, because the converter numbers unnamed constants differently in every run."""
    # Counted, not collected in sets: one of two equal constants may be missing.
    lost = Counter(expected.values()) - Counter(found.values())
    extra = Counter(found.values()) - Counter(expected.values())
    names = {digest: name for name, digest in (*found.items(), *expected.items())}
    missing = [f"the value of constant {names[digest]!r} is missing" for digest in lost]
    return missing + [f"the value of constant {names[digest]!r} was not expected" for digest in extra]


def _field_differences(expected: Any, found: Any, fields: list[str]) -> list[str]:
    pairs = ((field, getattr(expected, field), getattr(found, field)) for field in fields)
    return [_sentence(field, want, got) for field, want, got in pairs if want != got]


def _sentence(field: str, want: Any, got: Any) -> str:
    if isinstance(want, (tuple, list)) and isinstance(got, (tuple, list)) and len(want) == len(got):
        index = next(i for i, (a, b) in enumerate(zip(want, got, strict=True)) if a != b)
        if len(want) > 4:
            return f"{field}[{index}] is {got[index]!r}, expected {want[index]!r}"
    return f"{field} is {_short(got)}, expected {_short(want)}"


def _short(value: Any, length: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}..."


def different_ends(expected: onnx.ModelProto, proto: onnx.ModelProto) -> list[str]:
    """Return the differences in names, types and order of inputs and outputs, one sentence each."""
    problems = []
    for kind in ("input", "output"):
        wanted, given = ([_end(value) for value in getattr(model.graph, kind)] for model in (expected, proto))
        if wanted != given:
            problems.append(f"the {kind}s are {', '.join(given)}, expected {', '.join(wanted)}")
    return problems


def _end(value: onnx.ValueInfoProto) -> str:
    return f"{value.name!r} ({onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()})"


def differences_from_note(proto: onnx.ModelProto, noted: Mapping[str, Any], found: FileStructure) -> list[str]:
    """Return the differences between a file's quantizers and the encodings in its metadata, one sentence each."""
    if graph_digest(proto) == noted["graph_sha256"]:
        return []
    problems = list(found.strays)
    for name, encoding in noted["encodings"].items():
        pair = found.pairs.get(name)
        if "scale" not in encoding:
            problems += [] if name in found.weights else [f"weight {name!r} is missing"]
        elif pair is None:
            problems.append(f"pair {name!r} is missing")
        elif (pair.scale, pair.zero_point) != (encoding["scale"], encoding["zero_point"]):
            problems.append(
                f"pair {name!r} has scale {pair.scale} and zero point {pair.zero_point}, expected "
                f"{encoding['scale']} and {encoding['zero_point']}"
            )
    return problems or ["scales, axes, integers or constants are not those that the exporter wrote"]
