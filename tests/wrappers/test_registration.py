"""Which layer classes a wrapper class serves by its name."""

import qdq_workbench as qdq
from qdq_workbench.wrappers.base import wrapper_class_for


def test_a_layer_class_may_end_like_the_bases_of_the_wrappers():
    class EncoderBaseQuantizeWrapper(qdq.WeightedBaseQuantizeWrapper):
        pass

    assert wrapper_class_for(("EncoderBase",), has_weights=True) is EncoderBaseQuantizeWrapper


def test_the_bases_serve_no_layer_class():
    assert wrapper_class_for(("WeightedBase",), has_weights=False) is qdq.NonWeightedBaseQuantizeWrapper
    assert wrapper_class_for(("NonWeightedBase",), has_weights=True) is qdq.WeightedBaseQuantizeWrapper
