"""One conversion gives a file in half precision and its float32 form, bit for bit as conversions of their own do."""

import keras
import pass_models
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.export import conversions
from qdq_workbench.export.conversions import Conversions
from qdq_workbench.export.half.request import half_request
from qdq_workbench.export.keras_side import float_graph
from qdq_workbench.export.onnx_export import build_proto


def recurrent():
    """A model with a layer that is taken out of the conversion."""
    steps = keras.Input((5, 3), name="steps")
    return keras.Model(steps, layers.Dense(2, name="head")(layers.LSTM(4, name="cells")(steps)))


MODELS = [getattr(pass_models, name) for name in ("block", "in_blocks", "partly_float", "transformed")]


@pytest.fixture
def converted(monkeypatch):
    """The opsets of the conversions from here on."""
    done = []
    translate = float_graph._translate
    monkeypatch.setattr(float_graph, "_translate", lambda *given: done.append(given[-1]) or translate(*given))
    return done


@pytest.fixture(scope="module")
def block():
    return pass_models.quantized(pass_models.block)


def built(q_model, kept=None, *, half=False, opset=21, dynamic_batch=True):
    request = half_request(q_model, "float16") if half else None
    options = {"opset": opset, "dynamic_batch": dynamic_batch, "half": request, "conversions": kept}
    return build_proto(q_model, q_model.plan.target_object, **options)[0].SerializeToString(deterministic=True)


@pytest.mark.parametrize("make", [*MODELS, recurrent], ids=lambda make: make.__name__)
def test_a_kept_conversion_gives_the_files_of_a_new_one(make, converted):
    q_model, kept = pass_models.quantized(make), Conversions()
    first = built(q_model, kept, half=True)
    assert len(converted) == 1
    # The second one from what the first one left, and the third one from what the second one left.
    plain, again = built(q_model, kept), built(q_model, kept, half=True)
    assert len(converted) == 1
    assert (built(q_model), built(q_model, half=True)) == (plain, first)
    assert again == first
    assert len(converted) == 3


def test_building_a_file_changes_nothing_in_the_loops_of_a_kept_graph(converted):
    q_model, kept = pass_models.quantized(pass_models.looping), Conversions()
    files = [built(q_model, kept, half=half) for half in (True, False, True, False)]
    assert len(converted) == 1
    # Not compared with new conversions, which number the tensors in the bodies of loops on.
    assert files[:2] == files[2:]


@pytest.mark.parametrize("other", [{"opset": 20}, {"dynamic_batch": False}], ids=str)
def test_a_file_of_another_kind_is_converted_by_itself(block, converted, other):
    kept = Conversions()
    built(block, kept, half=True)
    assert built(block, kept, **other) == built(block, **other)
    assert len(converted) == 3
    built(block, kept)
    built(block, kept, **other)
    assert len(converted) == 3


def test_another_plan_of_the_same_model_is_converted_by_itself(block, converted):
    kept, other = Conversions(), qdq.retarget(block, "tensorrt")
    assert built(block, kept) != built(other, kept)
    assert len(converted) == 2
    assert built(other, kept) == built(other)


def test_a_graph_too_large_to_keep_is_converted_again(block, converted, monkeypatch):
    monkeypatch.setattr(conversions, "KEPT_BYTES", 1000)
    kept = Conversions()
    assert built(block, kept) == built(block, kept)
    assert len(converted) == 2


def test_the_oldest_graphs_are_dropped_first(block, converted, monkeypatch):
    kept = Conversions()
    built(block, kept, opset=17)
    # Room for one graph, and for a little more.
    ((content, _),) = kept._kept.values()
    monkeypatch.setattr(conversions, "KEPT_BYTES", len(content) + len(content) // 2)
    built(block, kept, opset=18)
    built(block, kept, opset=18)
    assert converted == [17, 18]
    built(block, kept, opset=17)
    assert converted == [17, 18, 17]


def test_conversions_for_other_files_are_added(block, converted):
    kept, others = Conversions(), Conversions()
    built(block, kept, opset=17)
    built(block, others, opset=18)
    kept.update(others)
    built(block, kept, opset=17)
    built(block, kept, opset=18)
    assert converted == [17, 18]
