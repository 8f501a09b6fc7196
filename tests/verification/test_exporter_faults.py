"""Faults in every pass and step of an export: verification finds them where a new export has them, too.

Silenced are the comparison with a new export, the contracts of the passes, and what the exporter reads of its own file.
"""

import importlib
import pathlib

import pass_models
import pytest
from exporter_faults import FAULTS, IN_PASSES, plant

from qdq_workbench.conversion.engine.cut import cut_model
from qdq_workbench.errors import ExportError
from qdq_workbench.export import conversions, known_exports, onnx_export
from qdq_workbench.export.half.request import half_request
from qdq_workbench.export.keras_side.float_graph import convert_float
from qdq_workbench.export.passes import order
from qdq_workbench.verification import forms, parity, verify

build_onnx = importlib.import_module("qdq_workbench.export.build_onnx")  # the package's own name is the function
PATH = pathlib.Path("model.onnx")


class Made(dict):
    """Quantized models by name, each made when it is asked for."""

    def __missing__(self, name):
        self[name] = pass_models.quantized(getattr(pass_models, name))
        return self[name]


@pytest.fixture(scope="module")
def q_models():
    return Made()


_KEPT = {}


def kept(function):
    """A function that is computed once for each of its arguments, which stay; cuts and conversions take the time."""

    def once(given, **options):
        # A cut model is wrapped anew in every export, and its inputs are not.
        key = (id(given if function is cut_model else given.inputs), *options.items())
        if key not in _KEPT:
            _KEPT[key] = (given, function(given, **options))
        return _KEPT[key][1]

    return once


@pytest.fixture
def converted_once(request, monkeypatch):
    """Faults in passes start from the conversion of the model without them."""
    if request.getfixturevalue("fault") in IN_PASSES:
        for user in (build_onnx, conversions):
            monkeypatch.setattr(user, "convert_float", kept(convert_float))
        for user in (onnx_export, parity):
            monkeypatch.setattr(user, "cut_model", kept(cut_model))


@pytest.fixture
def silent(monkeypatch):
    """Silence what repeats or reads the exporter."""
    monkeypatch.setattr(known_exports.Exports, "hold", lambda *_: True)
    monkeypatch.setattr(forms, "unfinished", lambda *_, **__: [])
    monkeypatch.setattr(build_onnx, "check_written", lambda *_: None)


def built(q_model, *, half):
    request = half_request(q_model, "float16", ends=False) if half else None
    return onnx_export.build_proto(q_model, q_model.plan.target_object, opset=None, dynamic_batch=True, half=request)[0]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.usefixtures("silent", "converted_once")
def test_a_fault_of_the_exporter_is_found(fault, q_models, monkeypatch):
    q_model = q_models[fault.model]
    plant(fault, monkeypatch)
    try:
        proto = built(q_model, half=fault.half)
    except ExportError as error:
        assert fault.said == "onnx.checker"
        assert "onnx.checker" in str(error)  # noqa: PT017
        return
    report = verify.verify_model(PATH, proto, q_model, None)
    failed = [f"{check.name}: {check.detail}" for check in report.checks if not check.passed]
    assert any(fault.said in each for each in [*failed, report.form_remark]), report.summary()


MODELS = ("block", "centered", "in_blocks", "images", "looping", "partly_float", "sequences", "transformed", "volumes")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("silent")
def test_without_a_fault_the_files_verify(name, q_models):
    report = verify.verify_model(PATH, built(q_models[name], half=False), q_models[name], None)
    assert report.passed, report.summary()
    assert report.form_remark == ""


def test_a_fault_is_planted_in_every_pass():
    passes = {graph_pass.name for stage in order.STAGES for graph_pass in stage.passes}
    assert passes == {fault.name for fault in IN_PASSES}
