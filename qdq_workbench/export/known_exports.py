"""The files that a model was exported to since it last changed, so that verification need not build them again.

A file is identified by the hash of its graph, the state of a model by that of its plan and its weights. A model that
has changed since the export has no known files.
"""

from __future__ import annotations

import weakref

import onnx

from qdq_workbench._fingerprints import fingerprint_of, text_of
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.export.metadata import graph_digest

_EXPORTS: weakref.WeakKeyDictionary[QuantizedModel, tuple[str, set[str]]] = weakref.WeakKeyDictionary()


def remember_export(q_model: QuantizedModel, proto: onnx.ModelProto) -> None:
    """Record a file that was built from a model in its present state, for any target."""
    state = _state(q_model)
    known = _EXPORTS.get(q_model)
    files = known[1] if known is not None and known[0] == state else set()
    files.add(_file(proto))
    _EXPORTS[q_model] = (state, files)


def is_known_export(q_model: QuantizedModel, proto: onnx.ModelProto) -> bool:
    """Return whether exactly this file was built from a model in its present state."""
    known = _EXPORTS.get(q_model)
    # The state comes last, because it hashes every weight.
    return known is not None and _file(proto) in known[1] and known[0] == _state(q_model)


def _file(proto: onnx.ModelProto) -> str:
    # The digest is of the graph alone, and the same nodes compute something else at another opset.
    opsets = sorted((entry.domain, entry.version) for entry in proto.opset_import)
    return f"{graph_digest(proto)} {opsets}"


def _state(q_model: QuantizedModel) -> str:
    paths = [variable.path for variable in q_model.weights]
    return fingerprint_of(text_of(q_model.plan.to_dict(), paths), arrays=q_model.weights)
