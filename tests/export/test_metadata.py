"""The exporter's note in a file: what is written is read back, and a damaged or hostile one is refused by name."""

import base64
import json
import zlib

import numpy as np
import onnx
import pytest
from mock_graphs import chain
from onnx import TensorProto, numpy_helper
from pass_graphs import model_of

from qdq_workbench._fingerprints import bytes_digest
from qdq_workbench.errors import UnverifiableFileError
from qdq_workbench.export import metadata
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.metadata import describe, graph_digest, noted_target, read_metadata, write_metadata
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.planning import plan_placement
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

PLAN = plan_placement(chain(("Conv2D", "conv"), ("ReLU", "relu")), target="tensorrt")
ACTIVATION = Encoding(np.float32(0.5), np.int32(3), QuantizerSpec())
WEIGHT = Encoding(np.float32([0.5, 1]), np.int32([0, 0]), QuantizerSpec(axis=1), np.ones((3, 2), np.int8))


def model():
    return model_of([("Add", "x,w", "y")], {"x": (2,)}, "y", {"w": np.float32([1, 2])})


def noted(**options):
    proto = model()
    write_metadata(proto, PLAN, {"a": ACTIVATION, "conv/kernel": WEIGHT}, **options)
    return proto


def with_note(text):
    proto = model()
    entry = proto.metadata_props.add()
    entry.key, entry.value = "qdq_workbench", text
    return proto


def packed(data):
    return base64.b85encode(zlib.compress(json.dumps(data).encode())).decode()


# Writing and reading


def test_what_is_written_is_read_back():
    proto = noted()
    found = read_metadata(proto)
    assert proto.producer_name == "qdq-workbench"
    assert PlacementPlan.from_dict(found["plan"]) == PLAN
    assert found["graph_sha256"] == graph_digest(model())
    assert {"onnx", "numpy", "keras", "qdq-workbench"} <= found["versions"].keys()
    assert found["versions"]["onnx"] == onnx.__version__
    assert set(found["encodings"]) == {"a", "conv/kernel"}
    assert noted_target(proto) == "tensorrt"


@pytest.mark.parametrize(("given", "found"), [({}, None), ({"float_type": "float16"}, "float16")])
def test_only_another_type_of_floats_is_noted(given, found):
    assert read_metadata(noted(**given)).get("float_type") == found


def test_a_file_of_another_exporter_has_no_note():
    proto = model()
    entry = proto.metadata_props.add()
    entry.key, entry.value = "someone_elses", "text"
    assert read_metadata(proto) is None
    assert noted_target(proto) is None
    write_metadata(proto, PLAN, {})
    assert noted_target(proto) == "tensorrt"  # behind a note of others


def test_an_activation_is_described_by_numbers_and_a_weight_by_hashes():
    found = describe(ACTIVATION)
    assert (found["scale"], found["zero_point"]) == (0.5, 3)
    assert QuantizerSpec.from_dict(found["spec"]) == ACTIVATION.spec
    found = describe(WEIGHT)
    assert "scale" not in found
    assert found["codes_sha256"] == bytes_digest(WEIGHT.codes)
    assert found["scale_sha256"] == bytes_digest(np.float32([0.5, 1]))
    assert found["zero_point_sha256"] == bytes_digest(np.int32([0, 0]))
    assert json.loads(json.dumps(found)) == found


# Damaged notes


GOOD = {"plan": {"target": "tensorrt"}, "graph_sha256": "0", "encodings": {}, "versions": {}}


def test_a_note_of_the_least_fields_is_read():
    assert read_metadata(with_note(packed(GOOD))) == GOOD
    without = {key: value for key, value in GOOD.items() if key != "versions"}
    assert read_metadata(with_note(packed(without))) == without


GRID = {"scale": 1.0, "zero_point": 0}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"plan": None}, "TypeError"),
        ({"plan": {}}, "KeyError: 'target'"),
        ({"plan": {"target": 3}}, "TypeError: a text is missing"),
        ({"graph_sha256": None}, "TypeError: a text is missing"),
        ({"float_type": "float64"}, "ValueError: the floats are 'float64'"),
        ({"encodings": []}, "'encodings' is no dictionary"),
        ({"versions": "1"}, "'versions' is no dictionary"),
        ({"encodings": {"a": {**GRID, "scale": "wide"}}}, "the grid of 'a' is no numbers"),
        ({"encodings": {"a": GRID, "b": {**GRID, "zero_point": None}}}, "the grid of 'b' is no numbers"),
        ({"encodings": {"a": {"scale": 1.0}}}, "KeyError: 'zero_point'"),
        ({"encodings": {"a": 3}}, "TypeError"),
        ({"plan": {"target": "mine", "altered_target": {}}}, "Error: "),
    ],
)
def test_a_damaged_field_is_named(changes, says):
    with pytest.raises(UnverifiableFileError, match="own metadata are damaged; export the model again") as raised:
        read_metadata(with_note(packed({**GOOD, **changes})))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("gone", ["plan", "graph_sha256", "encodings"])
def test_a_field_that_is_missing_is_named(gone):
    data = {key: value for key, value in GOOD.items() if key != gone}
    with pytest.raises(UnverifiableFileError, match=f"KeyError: '{gone}'"):
        read_metadata(with_note(packed(data)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not base 85 \u00e4", "ValueError"),
        (base64.b85encode(b"not compressed").decode(), "error: "),
        (base64.b85encode(zlib.compress(b"not json")).decode(), "Error: "),
        (base64.b85encode(zlib.compress(b"[1, 2]")).decode(), "TypeError"),
        (base64.b85encode(zlib.compress(json.dumps(GOOD).encode())[:-6]).decode(), "the text is cut off, or too long"),
        ("", "the text is cut off"),
    ],
)
def test_a_damaged_text_is_refused(text, says):
    with pytest.raises(UnverifiableFileError, match=f"damaged.*{says}"):
        noted_target(with_note(text))


def test_a_text_that_expands_beyond_the_limit_is_refused(monkeypatch):
    text = packed(GOOD)
    size = len(json.dumps(GOOD))
    monkeypatch.setattr(metadata, "_LONGEST_TEXT", size + 1)
    assert read_metadata(with_note(text)) == GOOD
    monkeypatch.setattr(metadata, "_LONGEST_TEXT", size - 1)
    with pytest.raises(UnverifiableFileError, match="too long"):
        read_metadata(with_note(text))


# Hashes


def test_the_hash_of_a_graph_is_that_of_what_it_computes():
    proto, same = model(), noted()
    same.producer_version, same.doc_string = "9", "other"
    assert graph_digest(proto) == graph_digest(same)
    changed = model()
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32([1, 3]), "w"))
    assert graph_digest(changed) != graph_digest(proto)
    changed = model()
    changed.graph.node[0].op_type = "Sub"
    assert graph_digest(changed) != graph_digest(proto)


@pytest.mark.parametrize("limit", [10**9, 1])
def test_where_constants_were_loaded_from_is_not_hashed_and_stays_as_it_is(limit, monkeypatch):
    monkeypatch.setattr(metadata, "SINGLE_FILE_LIMIT", limit)
    proto, loaded = model(), model()
    loaded.graph.initializer[0].data_location = TensorProto.DEFAULT
    assert graph_digest(proto) == graph_digest(loaded)
    assert loaded.graph.initializer[0].HasField("data_location")
    assert not proto.graph.initializer[0].HasField("data_location")
    loaded.graph.initializer[0].data_location = TensorProto.EXTERNAL
    assert graph_digest(proto) != graph_digest(loaded)


def test_the_hash_of_a_large_graph_depends_on_all_its_parts(monkeypatch):
    monkeypatch.setattr(metadata, "SINGLE_FILE_LIMIT", 1)
    found = {graph_digest(model())}
    for change in (
        lambda g: g.initializer[0].CopyFrom(numpy_helper.from_array(np.float32([1, 3]), "w")),
        lambda g: g.node[0].input.reverse(),
        lambda g: g.input[0].type.tensor_type.shape.dim.add(),
        lambda g: setattr(g.output[0], "name", "z"),
        lambda g: g.value_info.add(name="w"),
    ):
        proto = model()
        change(proto.graph)
        found.add(graph_digest(proto))
    assert len(found) == 6
