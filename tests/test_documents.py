"""JSON and YAML that somebody broke, or wrote to stop us: a named error, at once."""

import contextlib
import copy
import json
import time

import numpy as np
import pytest
from small_models import residual_net

import qdq_workbench as qdq
from qdq_workbench import _documents
from qdq_workbench.analysis.search_known import Known
from qdq_workbench.cli.inputs import load_plan
from qdq_workbench.errors import QDQError, SpecError

DEEP = "[" * 50_000
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Return each kind of JSON file that users pass: how it is read, and what a good one holds."""
    folder = tmp_path_factory.mktemp("documents")
    model = residual_net()
    data = np.random.default_rng(0).normal(size=(8, *model.input_shape[1:])).astype("float32")
    plan = qdq.plan_placement(model, target="onnxruntime")
    (folder / "plan.json").write_text(json.dumps(plan.to_dict()))
    q_model = qdq.quantize_model(model, plan=plan)
    qdq.calibrate(q_model, data, verbose=False).save(folder / "ranges.json")
    qdq.sensitivity(q_model, data, layers=["stem"], verbose=False).save(folder / "sensitivity.json")
    qdq.export_onnx(q_model, folder / "model.onnx")
    qdq.certify(folder / "model.onnx").save(folder / "certificate.json")
    qdq.profile_onnx(folder / "model.onnx", threads=1, rounds=1).save(folder / "latency.json")
    spec = qdq.QuantizationSpec()
    spec.add(["stem", "pool"], quantization_index=[0], quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    spec.save(folder / "spec.json")
    Known(folder / "search.json", "f", accuracies={"float": 1.0}).write()
    readers = {
        "plan": load_plan,
        "ranges": qdq.CalibrationResult.load,
        "sensitivity": qdq.SensitivityReport.load,
        "certificate": qdq.Certificate.load,
        "latency": qdq.LatencyReport.load,
        "spec": qdq.QuantizationSpec.load,
        "search": lambda path: Known.read(path, "f"),
    }
    return {name: (read, folder / f"{name}.json") for name, read in readers.items()}


KINDS = ("plan", "ranges", "sensitivity", "certificate", "latency", "spec", "search")


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 50_000, "{", "", "[]", "{}", "7", "null", '{"layers": {}}'])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_such_file_is_a_named_error(documents, kind, text, tmp_path):
    read, good = documents[kind]
    read(str(good))
    (tmp_path / "bad.json").write_text(text)

    with pytest.raises(QDQError) as caught:
        read(str(tmp_path / "bad.json"))

    assert len(str(caught.value)) < 1000


def damaged(document):
    """Yield copies of a document, each with one part missing or of another kind."""
    places = []

    def walk(value, path):
        for key in list(value) if isinstance(value, dict) else range(min(len(value), 2)):
            places.append((*path, key))
            if isinstance(value[key], (dict, list)):
                walk(value[key], (*path, key))

    walk(document, ())
    top = [place for place in places if len(place) == 1]
    for *path, key in (*top, *places[:: 1 + len(places) // 12]):
        for put in ("nothing", None, [], {"x": 1}, 1e999, "text"):
            other = copy.deepcopy(document)
            holder = other
            for step in path:
                holder = holder[step]
            if put == "nothing":
                del holder[key]
            else:
                holder[key] = put
            yield other


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_by_name(documents, kind, tmp_path):
    read, good = documents[kind]
    refused = 0
    for document in damaged(json.loads(good.read_text())):
        (tmp_path / "bad.json").write_text(json.dumps(document))
        with contextlib.suppress(QDQError):
            read(str(tmp_path / "bad.json"))
            continue
        refused += 1
    assert refused > 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{BOMB}layers: [*a11]", "aliases repeat more than 100,000 values"),
        (f"{BOMB}<<: *a11", "aliases repeat more"),
        ("layers: &a [*a]", "stands inside of what it means"),
        (DEEP, "nested too deeply"),
        ("{a: " * 20_000, "nested too deeply"),
        ("layers: 2001-99-99", "month must be in"),
        (f"layers: 1{'0' * 10_000}", "not valid YAML"),
    ],
    ids=["bomb", "merged bomb", "circle", "deep list", "deep mapping", "date", "long number"],
)
def test_yaml_that_never_ends_is_refused_at_once(text, says, tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    start = time.perf_counter()

    with pytest.raises(SpecError, match=says):
        qdq.QuantizationSpec.load(path)

    assert time.perf_counter() - start < 10  # a busy machine takes a second; the bomb took 29 and grew ninefold a line


def test_aliases_that_people_write_are_read(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(
        "common: &common {quantize_input: true, quantize_weight: false}\n"
        "layers:\n- {<<: *common, name: a}\n- {<<: *common, name: b, quantization_index: &one [1]}\n"
        "- {name: c, quantization_index: *one}\n"
    )

    spec = qdq.QuantizationSpec.load(path)

    assert [(entry.name, entry.quantize_weight, entry.quantization_index) for entry in spec.layers] == [
        ("a", False, None),
        ("b", False, [1]),
        ("c", True, [1]),
    ]


@pytest.mark.parametrize("text", ["[" * 501 + "]" * 501, '{"a": ' * 501 + "1" + "}" * 501], ids=["lists", "mappings"])
def test_a_deep_text_is_refused_before_python_reads_it(text, monkeypatch):
    """A program may have raised Python's limit of recursion beyond the size of the process's stack."""
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("the text was read"))
    with pytest.raises(_documents.DeeplyNestedError):
        _documents.parse_json(text)
