"""The C form of a model for firmware: arrays as `static const`, everything else as macros; C99 and C++.

Identifiers are made of the names of the model and its layers: characters other than letters and digits become
underscores, and duplicates are numbered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from qdq_workbench.graph.free_names import take_name

_PER_LINE = 100  # characters of an array's values
_TYPES = {"int8": "int8_t", "int32": "int32_t", "float32": "float"}
_PAIRS = (("kernel", "KERNEL"), ("strides", "STRIDE"), ("dilation", "DILATION"))
_NUMBERS = (("groups", "GROUPS"), ("depth_multiplier", "DEPTH_MULTIPLIER"), ("axis", "AXIS"))


def c_header(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return a model for firmware, the content of `model.json` and its arrays, as a C header."""
    return "\n".join(_Header(document, arrays).lines()) + "\n"


class _Header:
    def __init__(self, document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self._document = document
        self._arrays = arrays
        self._prefix = _identifier(document["model"]) or "model"
        self._taken: set[str] = set()

    def lines(self) -> Iterator[str]:
        guard = f"{self._prefix.upper()}_H"
        self._taken.add(guard)
        yield f"/* {_comment(self._document['model'])}: integers of a quantized model for {self._document['target']}."
        yield f" * Made by {_comment(self._document['made_by'])}. Nodes in computing order; tensors channels last."
        yield " * value = (integer - ZERO_POINT) * SCALE. A factor between two scales is multiplier * 2^(shift - 31)."
        yield " * INPUT_OFFSET is minus the zero point of the input, OUTPUT_OFFSET the zero point of the result."
        yield " */"
        yield f"#ifndef {guard}"
        yield f"#define {guard}"
        yield ""
        yield "#include <stdint.h>"
        yield from self._tensors()
        written: set[str] = set()
        for node in self._document["nodes"]:
            yield from self._node(node, written)
        yield ""
        yield f"#endif /* {guard} */"

    def _tensors(self) -> Iterator[str]:
        yield ""
        yield "/* Tensors: elements of one sample, scale, zero point. */"
        for name, tensor in self._document["tensors"].items():
            macro = self._unique(name)
            shape = "x".join(map(str, tensor["shape"])) or "1"
            yield f"/* {_comment(name)}: {tensor['dtype']}, {shape} */"
            yield f"#define {macro}_SIZE {int(np.prod(tensor['shape']))}"
            if "scale" in tensor:
                yield f"#define {macro}_SCALE {_float(tensor['scale'])}"
                yield f"#define {macro}_ZERO_POINT {_integer(tensor['zero_point'])}"

    def _node(self, node: Mapping[str, Any], written: set[str]) -> Iterator[str]:
        inputs, output = ", ".join(map(_comment, node["inputs"])), _comment(node["outputs"][0])
        yield ""
        yield f"/* {_comment(node['name'])}: {node['operator']}, {inputs} -> {output} */"
        macro = self._unique(f"{node['name']}_{node['operator']}")
        for name, value in self._settings(node):
            yield f"#define {macro}_{name} {value}"
        for name in node["arrays"].values():
            if name not in written:  # calls of a shared layer have one weight
                written.add(name)
                yield from self._array(name)

    def _settings(self, node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the macros of a node, without the prefix of its name, and their values."""
        grids = [self._document["tensors"][name] for name in node["inputs"]]
        result = self._document["tensors"][node["outputs"][0]]
        many = len(grids) > 1
        for index, grid in enumerate(grids, start=1):
            if "zero_point" in grid:
                yield f"INPUT_{index}_OFFSET" if many else "INPUT_OFFSET", _integer(-grid["zero_point"])
        if "zero_point" in result:
            yield "OUTPUT_OFFSET", _integer(result["zero_point"])
        if "clamp" in node:
            yield "ACTIVATION_MIN", _integer(node["clamp"][0])
            yield "ACTIVATION_MAX", _integer(node["clamp"][1])
        yield from _geometry(node, grids[0]["shape"], result["shape"])
        yield from _factors(node, many=many)

    def _array(self, name: str) -> Iterator[str]:
        values = self._arrays[name]
        shape = "x".join(map(str, values.shape))
        kind = _TYPES[str(values.dtype)]
        yield f"/* axes {self._document['arrays'][name]['axes']}: {shape} */"
        yield f"static const {kind} {self._unique(name).lower()}[{values.size}] = {{"
        texts = [_float(v) if values.dtype == np.float32 else str(int(v)) for v in values.ravel()]
        line = "   "
        for text in texts:
            if len(line) + len(text) > _PER_LINE:
                yield line
                line = "   "
            line += f" {text},"
        yield line
        yield "};"

    def _unique(self, name: str) -> str:
        """Return a macro prefix that is unique in the header."""
        # Compared in capitals, as macros are written: names that differ in case alone would be one macro.
        return take_name(f"{self._prefix}_{_identifier(name)}".upper(), self._taken)


def _geometry(node: Mapping[str, Any], given: list[int], made: list[int]) -> Iterator[tuple[str, str]]:
    for axis, size in zip("HWC" if len(given) == 3 else "C", given, strict=False):
        yield f"INPUT_{axis}", str(size)
    for axis, size in zip("HWC" if len(made) == 3 else "C", made, strict=False):
        yield f"OUTPUT_{axis}", str(size)
    for key, name in _PAIRS:
        if key in node:
            yield f"{name}_H", str(node[key][0])
            yield f"{name}_W", str(node[key][1])
    for names, ends in zip((("TOP", "BOTTOM"), ("LEFT", "RIGHT")), node.get("padding", ()), strict=False):
        yield from ((f"PAD_{name}", str(count)) for name, count in zip(names, ends, strict=True))
    for key, name in _NUMBERS:
        if key in node:
            yield name, str(node[key])


def _factors(node: Mapping[str, Any], *, many: bool) -> Iterator[tuple[str, str]]:
    """Yield the macros of the multipliers and shifts that are not arrays, one per input, result or window size."""
    if "left_shift" in node:
        yield "LEFT_SHIFT", str(node["left_shift"])
    for index, (multiplier, shift) in enumerate(zip(node.get("multiplier", ()), node.get("shift", ()), strict=True)):
        result = "left_shift" in node and index == 2
        name = "OUTPUT" if result else f"INPUT_{index + 1}" if many else "INPUT"
        yield f"{name}_MULTIPLIER", str(multiplier)
        yield f"{name}_SHIFT", _integer(shift)
    for count, (multiplier, shift) in node.get("multipliers", {}).items():
        yield f"MULTIPLIER_OF_{count}", str(multiplier)
        yield f"SHIFT_OF_{count}", _integer(shift)


def _identifier(name: str) -> str:
    """Return a name as a C identifier, with the prefix "m" where it begins with a digit."""
    found = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", name)).strip("_")
    return f"m{found}" if found[:1].isdigit() else found


def _comment(text: str) -> str:
    """Return a name for a C comment: all but letters, digits, spaces and some harmless signs become underscores."""
    return re.sub(r"[^A-Za-z0-9 _./:#@+-]", "_", text)


def _integer(value: int) -> str:
    return f"({int(value)})" if value < 0 else str(int(value))


def _float(value: float) -> str:
    # The shortest digits that give the same float32 when read back.
    return f"{np.format_float_scientific(np.float32(value))}f"
