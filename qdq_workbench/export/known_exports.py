"""The files that a model was exported to since it last changed, so that verification need not build them again.

An ONNX file is identified by the hash of its graph, a LiteRT file by that of its bytes, and the state of a model by
that of its plan and its weights. A model that has changed since the export has no known files, and no conversions.
"""

from __future__ import annotations

import dataclasses
import hashlib
import weakref

import onnx

from qdq_workbench._fingerprints import fingerprint_of, text_of
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.export.conversions import Conversions
from qdq_workbench.export.metadata import graph_digest

_EXPORTS: weakref.WeakKeyDictionary[QuantizedModel, tuple[str, Exports]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class Exports:
    """What is known of the exports of one model in one state.

    Args:
        files: The hashes of the files.
        conversions: The conversions of those in half precision.
    """

    files: set[str] = dataclasses.field(default_factory=set)
    conversions: Conversions = dataclasses.field(default_factory=Conversions)

    def hold(self, file: onnx.ModelProto | bytes) -> bool:
        """Return whether exactly this file, of ONNX or the bytes of a LiteRT file, was built from the model so."""
        return bool(self.files) and _file(file) in self.files


def remember_export(
    q_model: QuantizedModel, file: onnx.ModelProto | bytes, conversions: Conversions | None = None
) -> None:
    """Record a file that was built from a model in its present state, for any target, and what it was built from."""
    state = _state(q_model)
    before, exports = _EXPORTS.get(q_model, (None, Exports()))
    if before != state:
        exports = Exports()
    exports.files.add(_file(file))
    if conversions is not None:
        exports.conversions.update(conversions)
    _EXPORTS[q_model] = (state, exports)


def exports_of(q_model: QuantizedModel) -> Exports:
    """Return what is known of the exports of a model in its present state."""
    if q_model not in _EXPORTS:  # to know the state takes time, because it hashes every weight
        return Exports()
    state, exports = _EXPORTS[q_model]
    if state != _state(q_model):
        exports.conversions = Conversions()  # not the files: hashes take no memory, and the state may come back
        return Exports()
    return exports


def _file(file: onnx.ModelProto | bytes) -> str:
    if isinstance(file, bytes):
        return hashlib.sha256(file).hexdigest()
    # The digest is of the graph alone, and the same nodes compute something else at another opset.
    opsets = sorted((entry.domain, entry.version) for entry in file.opset_import)
    return f"{graph_digest(file)} {opsets}"


def _state(q_model: QuantizedModel) -> str:
    paths = [variable.path for variable in q_model.weights]
    return fingerprint_of(text_of(q_model.plan.to_dict(), paths), arrays=q_model.weights)
