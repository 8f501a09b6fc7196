"""Results of splits that nothing reads, which TensorFlow's converter does not quantize alike every time.

It makes a split compute on integers if a pair is left on each of its results. Of a result that nothing reads it
sometimes removes that pair first, in about every second conversion of the same model:

    integers -> SPLIT -> DEQUANTIZE        or        integers -> DEQUANTIZE -> SPLIT

So the model that it reads returns these results too. No file does: `without_unread` takes them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qdq_workbench.export.litert.tflite_file import TFLiteFile

_UNREAD = "qdq.unread."  # begins their names among the outputs; a name of the model has no point
_SPLITTING = ("Split", "SplitV", "Unpack")  # the operations of TensorFlow that the converter gives one scale


def unread_results(outputs: Sequence[Any]) -> dict[str, Any]:
    """Return the results in float of the splits that a graph's outputs depend on and nothing else does, by name."""
    todo, seen = list(outputs), {}
    while todo:
        tensor = todo.pop()
        if tensor.name not in seen:
            seen[tensor.name] = tensor
            todo += tensor.op.inputs
    splits = {tensor.op.name: tensor.op for tensor in seen.values() if tensor.op.type in _SPLITTING}
    unread = [
        tensor
        for split in splits.values()
        for tensor in split.outputs
        if tensor.name not in seen and tensor.dtype.is_floating
    ]
    return {f"{_UNREAD}{number}": tensor for number, tensor in enumerate(unread)}


def without_unread(file: TFLiteFile) -> None:
    """Take the results of `unread_results` out of a file's outputs."""
    for signature in file.signatures:
        signature.outputs = [each for each in signature.outputs if not each.name.startswith(_UNREAD.encode())]
        ends = {each.tensorIndex for each in signature.outputs}
        graph = file.graphs[signature.subgraphIndex]
        graph.outputs = [index for index in graph.outputs if index in ends]
