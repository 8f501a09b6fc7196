"""Sessions: how a file is handed over, which failures get which name, and what is fed to a model."""

import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from pass_graphs import model_of

from qdq_workbench.errors import VerificationError
from qdq_workbench.onnx_graph import sessions
from qdq_workbench.onnx_graph.model_files import constant_bytes
from qdq_workbench.onnx_graph.processor import EXACT_SUMS

MODEL = model_of([("MatMul", "x,w", "y")], {"x": ("n", 3)}, "y", {"w": np.eye(3, 2, dtype=np.float32)})


# Opening and running


@pytest.mark.parametrize("options", [{}, {"as_planned": True}, {"exact_sums": True}])
def test_a_session_computes_in_the_order_of_the_wanted_names(options):
    model = model_of([("Relu", "x", "r"), ("Neg", "r", "y")], {"x": (2,)}, "r,y")
    session = sessions.make_session(model, optimized=True, **options)
    last, first = sessions.run_once(session, ["y", "r"], {"x": np.float32([-1, 2])})
    assert (first.tolist(), last.tolist()) == ([0.0, 2.0], [0.0, -2.0])


def test_a_failed_run_names_the_shapes_that_were_given():
    session = sessions.make_session(MODEL, optimized=False)
    with pytest.raises(sessions.RunError, match=r"fails to run it: .* Received: inputs of shapes \{'x': \(2, 5\)\}"):
        sessions.run_once(session, ["y"], {"x": np.zeros((2, 5), np.float32)})
    assert issubclass(sessions.RunError, VerificationError)


def test_a_refused_file_is_named_by_its_path_or_by_its_size(tmp_path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    path = tmp_path / "text.onnx"
    path.write_text("no model")
    with pytest.raises(VerificationError, match=r"refuses the file: .*Received: '.*text.onnx'$"):
        sessions.open_session(str(path), options)
    with pytest.raises(VerificationError, match=r"Received: a model of 8 bytes$"):
        sessions.open_session(b"no model", options)


class Fickle:
    """ONNX Runtime's session in a version that forgets a type: it opens without one of its optimizers only."""

    def __init__(self, message, needed="QDQS8ToU8Transformer"):
        self.message, self.needed, self.tried = message, needed, []

    def __call__(self, model, options, providers, disabled_optimizers):
        self.tried.append(list(disabled_optimizers))
        if self.needed not in disabled_optimizers:
            raise RuntimeError(self.message)
        return "a session"


@pytest.mark.parametrize("disabled", [[], ["ConstantSharing"]])
def test_a_file_that_the_runtime_itself_spoils_is_opened_without_its_rewriting(disabled, monkeypatch):
    fickle = Fickle("Node q: output_dtype is not that of the zero point")
    monkeypatch.setattr(onnxruntime, "InferenceSession", fickle)
    assert sessions.open_session(b"", None, disabled) == "a session"
    assert fickle.tried == [disabled, [*disabled, "QDQS8ToU8Transformer"]]
    assert sessions.needs_disabled_rewriting(b"")


def test_any_other_failure_is_not_tried_again(monkeypatch):
    fickle = Fickle("no such\n  operator")
    monkeypatch.setattr(onnxruntime, "InferenceSession", fickle)
    with pytest.raises(VerificationError, match="refuses the file: no such operator Received"):
        sessions.open_session(b"", None)
    assert fickle.tried == [[]]
    assert not sessions.needs_disabled_rewriting(b"")


def test_a_file_that_is_refused_both_times_is_refused(monkeypatch):
    fickle = Fickle("output_dtype", needed="nothing that there is")
    monkeypatch.setattr(onnxruntime, "InferenceSession", fickle)
    with pytest.raises(VerificationError, match="refuses the file: output_dtype"):
        sessions.open_session(b"", None)
    assert len(fickle.tried) == 2


def test_a_good_file_needs_nothing_disabled():
    assert not sessions.needs_disabled_rewriting(MODEL.SerializeToString())


@pytest.mark.parametrize(
    ("given", "disabled", "entries"),
    [
        ({}, [], {}),
        (
            {"as_planned": True},
            ["WeightBiasQuantization", "DoubleQDQPairsRemover"],
            {"session.qdq_matmulnbits_accuracy_level": "1"},
        ),
        ({"exact_sums": True}, ["ConstantSharing"], {EXACT_SUMS: "1"}),
    ],
)
def test_what_a_session_is_asked_for(given, disabled, entries, monkeypatch):
    seen = {}

    def kept(_, options, __, disabled_optimizers):
        seen.update(options=options, disabled=disabled_optimizers)

    monkeypatch.setattr(onnxruntime, "InferenceSession", kept)
    for optimized, level in ((True, "ORT_ENABLE_ALL"), (False, "ORT_DISABLE_ALL")):
        sessions.make_session(MODEL, optimized=optimized, **given)
        assert seen["disabled"] == disabled
        assert seen["options"].graph_optimization_level.name == level
        for key in ("session.qdq_matmulnbits_accuracy_level", EXACT_SUMS):
            if key in entries:
                assert seen["options"].get_session_config_entry(key) == entries[key]
            else:
                with pytest.raises(RuntimeError):
                    seen["options"].get_session_config_entry(key)


# Models beyond one message


def test_a_small_model_is_handed_over_as_bytes():
    with sessions.session_source(MODEL) as source:
        assert source == MODEL.SerializeToString()


def adding_ones():
    """A model with a constant that is large enough to be kept outside of a file."""
    return model_of([("Add", "x,w", "y")], {"x": (512,)}, "y", {"w": np.ones(512, np.float32)})


def test_a_large_model_is_handed_over_as_files_for_a_time_and_keeps_its_constants(monkeypatch):
    monkeypatch.setattr(sessions, "SINGLE_FILE_LIMIT", 10)
    model = adding_ones()
    with sessions.session_source(model) as source:
        assert pathlib.Path(source).is_file()
        assert len(list(pathlib.Path(source).parent.iterdir())) == 2
    assert not pathlib.Path(source).exists()
    session = sessions.make_session(model, optimized=False)
    assert sessions.run_once(session, ["y"], {"x": np.ones(512, np.float32)})[0].sum() == 1024


def test_the_limit_itself_still_fits_into_one_message(monkeypatch):
    monkeypatch.setattr(sessions, "SINGLE_FILE_LIMIT", constant_bytes(MODEL))
    with sessions.session_source(MODEL) as source:
        assert isinstance(source, bytes)


@pytest.mark.parametrize(("limit", "files"), [(10, 2), (10**9, 1)])
def test_a_model_is_saved_whole(limit, files, tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "SINGLE_FILE_LIMIT", limit)
    model = adding_ones()
    assert sessions.save_whole(model, tmp_path / "m.onnx") == str(tmp_path / "m.onnx")
    assert len(list(tmp_path.iterdir())) == files
    assert onnx.numpy_helper.to_array(model.graph.initializer[0]).sum() == 512
    assert onnx.numpy_helper.to_array(onnx.load(tmp_path / "m.onnx").graph.initializer[0]).sum() == 512


# What a model takes and gives


def test_inputs_are_fed_with_shape_and_type_and_old_files_list_constants_there():
    ends = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT16, ("n", 3, 0)),
        helper.make_tensor_value_info("b", TensorProto.INT64, ()),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, (3,)),
    ]
    constants = [helper.make_tensor("w", TensorProto.FLOAT, (3,), [1, 2, 3])]
    found = sessions.fed_inputs(helper.make_model(helper.make_graph([], "ends", ends, [], constants)))
    assert found == {"a": ((None, 3, 0), np.dtype("float16")), "b": ((), np.dtype("int64"))}


def test_further_outputs_are_what_nodes_compute_each_once():
    model = model_of([("Relu", "x", "r"), ("Neg", "r", "n"), ("Abs", "n", "y")], {"x": (2,)}, "y")
    more = sessions.with_outputs(model, ["n", "x", "y", "n", "nowhere", "r"])
    assert [value.name for value in more.graph.output] == ["y", "n", "r"]
    assert [value.name for value in model.graph.output] == ["y"]
    session = sessions.make_session(more, optimized=True)
    assert sessions.run_once(session, ["r"], {"x": np.float32([-1, 2])})[0].tolist() == [0, 2]
