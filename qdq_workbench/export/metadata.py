"""The metadata of an exported file: plan, encodings and package versions, compressed."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

import onnx

from qdq_workbench._documents import parse_json
from qdq_workbench._fingerprints import bytes_digest
from qdq_workbench._versions import versions_of
from qdq_workbench.errors import UnverifiableFileError, first_line
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.graph.half_precision import FLOAT32, FLOAT_TYPES
from qdq_workbench.onnx_graph.model_files import SINGLE_FILE_LIMIT, constant_bytes
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.targets import Target

_KEY = "qdq_workbench"
_LONGEST_TEXT = 1 << 28  # bytes after decompression: a hundred times those of the largest network in use
# TensorFlow is installed under either of two names.
_PACKAGES = ("keras", "tensorflow", "tensorflow-cpu", "tf2onnx", "onnx", "numpy", "qdq-workbench")


def write_metadata(
    proto: onnx.ModelProto, plan: PlacementPlan, encodings: Mapping[str, Encoding], float_type: str = FLOAT32
) -> None:
    """Write the plan that a model was built from, encodings, versions and its float type into its metadata."""
    data = {
        "plan": plan.to_dict(),
        "encodings": {name: describe(encoding) for name, encoding in encodings.items()},
        "graph_sha256": graph_digest(proto),
        "versions": versions_of(_PACKAGES),
    }
    if float_type != FLOAT32:
        data["float_type"] = float_type
    packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9)
    entry = proto.metadata_props.add()
    entry.key, entry.value = _KEY, base64.b85encode(packed).decode()
    proto.producer_name = "qdq-workbench"


def read_metadata(proto: onnx.ModelProto) -> dict[str, Any] | None:
    """Return the dictionary that `write_metadata` wrote; None for a file of another exporter.

    Raises:
        UnverifiableFileError: If the metadata are damaged.
    """
    for entry in proto.metadata_props:
        if entry.key == _KEY:
            try:
                return _checked(parse_json(_unpacked(base64.b85decode(entry.value))))
            except (LookupError, TypeError, ValueError, zlib.error) as error:
                raise UnverifiableFileError(
                    "The file's own metadata are damaged; export the model again. "
                    f"Received: {type(error).__name__}: {first_line(error)}"
                ) from error
    return None


def noted_target(proto: onnx.ModelProto) -> str | None:
    """Return the name of the target that a file was exported for; None for a file of another exporter.

    Raises:
        UnverifiableFileError: If the metadata are damaged.
    """
    noted = read_metadata(proto)
    return None if noted is None else str(noted["plan"]["target"])


def _unpacked(packed: bytes) -> bytes:
    """Decompress the metadata up to a limit, since a few bytes of a hostile file may expand beyond the memory."""
    # `zlib.decompress` has no limit.
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, _LONGEST_TEXT)
    if not unpacker.eof:
        raise ValueError("the text is cut off, or too long")
    return text


def _checked(data: Any) -> dict[str, Any]:
    """Return the metadata if the fields that their readers use are valid."""
    if not isinstance(data["plan"]["target"], str) or not isinstance(data["graph_sha256"], str):
        raise TypeError("a text is missing")
    if data.get("float_type", FLOAT32) not in FLOAT_TYPES:
        raise ValueError(f"the floats are {data['float_type']!r}")
    for part in ("encodings", "versions"):
        if not isinstance(data.get(part, {}), dict):
            raise TypeError(f"{part!r} is no dictionary")
    if "altered_target" in data["plan"]:
        Target.from_dict(data["plan"]["altered_target"])
    for name, encoding in data["encodings"].items():
        if "scale" in encoding and not all(isinstance(encoding[key], (int, float)) for key in ("scale", "zero_point")):
            raise TypeError(f"the grid of {name!r} is no numbers")
    return dict(data)


def describe(encoding: Encoding) -> dict[str, Any]:
    """Return an encoding as a JSON-compatible dictionary; the arrays of a weight as hashes."""
    found: dict[str, Any] = {"spec": encoding.spec.to_dict()}
    if encoding.codes is None:
        found["scale"] = float(encoding.scale)
        found["zero_point"] = int(encoding.zero_point)
    else:
        found["scale_sha256"] = bytes_digest(encoding.scale)
        found["zero_point_sha256"] = bytes_digest(encoding.zero_point)
        found["codes_sha256"] = bytes_digest(encoding.codes)
    return found


def graph_digest(proto: onnx.ModelProto) -> str:
    """Return the SHA-256 of a model's graph, without metadata: nodes, attributes, constants, inputs and outputs."""
    # Loading external data sets a field to its default, which must not change the hash, nor hashing the model.
    loaded = [
        tensor
        for tensor in proto.graph.initializer
        if tensor.HasField("data_location") and tensor.data_location == onnx.TensorProto.DEFAULT
    ]
    for tensor in loaded:
        tensor.ClearField("data_location")
    try:
        return _digest_of_graph(proto)
    finally:
        for tensor in loaded:
            tensor.data_location = onnx.TensorProto.DEFAULT


def _digest_of_graph(proto: onnx.ModelProto) -> str:
    if constant_bytes(proto) <= SINGLE_FILE_LIMIT:
        return hashlib.sha256(proto.graph.SerializeToString(deterministic=True)).hexdigest()
    hashed = hashlib.sha256()  # protobuf writes 2 GB at most: first the constants one by one, then the rest
    for tensor in proto.graph.initializer:
        hashed.update(tensor.SerializeToString(deterministic=True))
    rest = onnx.GraphProto()
    for field in ("node", "input", "output", "value_info"):
        getattr(rest, field).extend(getattr(proto.graph, field))
    hashed.update(rest.SerializeToString(deterministic=True))
    return hashed.hexdigest()
