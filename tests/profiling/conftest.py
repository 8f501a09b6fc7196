"""The float and the INT8 file of a small residual network, written once; and times of full length."""

import pytest
from short_turns import full_length
from small_models import residual_net, samples

import qdq_workbench as qdq


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiled")
    model = residual_net()
    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, samples(model), verbose=False)
    q_model.save(folder / "q.keras")
    qdq.export_onnx(q_model, folder / "int8.onnx")
    qdq.export_float_onnx(model, folder / "float.onnx")
    return folder


@pytest.fixture(scope="module", autouse=True)
def _turns_of_full_length():
    with pytest.MonkeyPatch.context() as patch:
        full_length(patch)
        yield
