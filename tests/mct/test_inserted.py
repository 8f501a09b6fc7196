"""What is known of operations that `shift_negative` has inserted: by name, each in the list of its kind alone."""

from types import SimpleNamespace

from keras import layers

from qdq_workbench import mct
from qdq_workbench.mct.inserted import knowing


def test_an_addition_is_quantized_and_a_padding_is_looked_through():
    info = knowing(mct.FrameworkInfo([], [layers.ReLU], [layers.Flatten]), {"act_shift": "shift", "act_pad": "pad"})
    nodes = [SimpleNamespace(name=name) for name in ("act_shift", "act_pad")]
    assert [info.in_activation_ops(node) for node in nodes] == [True, False]
    assert [info.in_no_quantization_ops(node) for node in nodes] == [False, True]
