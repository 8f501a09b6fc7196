"""Two conversions of one model that differ in the order and the numbers of names become the same model."""

import re

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper
from pass_graphs import computed

from qdq_workbench.export.keras_side.stable_order import in_stable_order, number_functions


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def value(name, shape=(2,), kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, reads, writes, **attributes):
    return helper.make_node(op, reads.split(","), [writes], writes.removesuffix(":0"), **attributes)


def branch(letter, number):
    """A branch that reads a tensor around it, and two constants."""
    made = [
        node("Add", f"mul__98:0,const__{number}", f"{letter}__99:0"),
        node("Mul", f"{letter}__99:0,const__{number + 1}", f"{letter}__100:0"),
    ]
    constants = [constant(f"const__{number}", np.float32([1, 2])), constant(f"const__{number + 1}", np.float32([3, 4]))]
    known = [value(f"{letter}__99:0", ("unk__8",))]
    return helper.make_graph(made, f"{letter}__3", [], [value(f"{letter}__100:0", (2,))], constants, value_info=known)


def model():
    made = [
        node("Mul", "x,const__97", "mul__98:0"),
        node("ReduceSum", "mul__98:0", "sum__99", keepdims=0),
        node("Greater", "sum__99,zero", "positive__1000"),
        node("If", "positive__1000", "if__12", then_branch=branch("then", 9), else_branch=branch("else", 99)),
        node("Sub", "if__12,const__101", "y"),
        node("Neg", "x", "unread__4"),
    ]
    constants = [
        constant("const__97", np.float32([1, -1])),
        constant("const__101", np.float32([5, 6])),
        constant("zero", np.float32(0)),
        constant("unread__5", np.float32([1, 2])),
    ]
    known = [value("mul__98:0", ("unk__7",))]
    graph = helper.make_graph(made, "graph", [value("x")], [value("y")], constants, value_info=known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shifted(original, by):
    """Return a model with larger numbers in all its names."""
    text = original.SerializeToString()
    copied = onnx.ModelProto.FromString(text)
    parts = [copied.graph]
    while parts:
        part = parts.pop()
        for each in part.node:
            each.input[:] = [numbered(name, by) for name in each.input]
            each.output[:] = [numbered(name, by) for name in each.output]
            each.name = numbered(each.name, by)
            parts.extend(attribute.g for attribute in each.attribute if attribute.HasField("g"))
        for named in (*part.initializer, *part.input, *part.output, *part.value_info):
            named.name = numbered(named.name, by)
        for known in part.value_info:
            for size in known.type.tensor_type.shape.dim:
                size.dim_param = numbered(size.dim_param, by)
        part.name = numbered(part.name, by)
    return copied


def numbered(name, by):
    return re.sub(r"__(\d+)", lambda found: f"__{int(found[1]) + by}", name)


def shuffled(original, seed):
    """Return a model whose nodes, constants and known shapes are in another order."""
    copied = onnx.ModelProto.FromString(original.SerializeToString())
    for field in (copied.graph.node, copied.graph.initializer, copied.graph.value_info):
        order = np.random.default_rng(seed).permutation(len(field))
        copies = [type(field[index]).FromString(field[index].SerializeToString()) for index in order]
        del field[:]
        field.extend(copies)
    return copied


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by", [0, 1, 900])
def test_order_and_numbers_follow_from_the_graph_alone(by, seed):
    first, second = model(), shuffled(shifted(model(), by), seed)
    for each in (first, second):
        in_stable_order(each)
    assert first == second


def test_the_model_computes_the_same_without_what_nothing_reads():
    ordered = model()
    in_stable_order(ordered)
    onnx.checker.check_model(ordered, full_check=True)
    np.testing.assert_array_equal(computed(ordered), computed(model()))
    assert [each.op_type for each in ordered.graph.node] == ["Mul", "ReduceSum", "Greater", "If", "Sub"]
    assert [each.name for each in ordered.graph.initializer] == ["const__2", "zero", "const__3"]
    assert [each.name for each in ordered.graph.value_info] == ["mul__2:0"]
    otherwise, then = (attribute.g for attribute in ordered.graph.node[3].attribute)
    assert (then.name, otherwise.name) == ("then", "else")
    assert list(then.node[1].input) == ["then__2:0", "const__7"]
    assert [each.name for each in otherwise.initializer] == ["const__4", "const__5"]
    sizes = [part.value_info[0].type.tensor_type.shape.dim[0].dim_param for part in (ordered.graph, otherwise)]
    assert sizes == ["unk__0", "unk__1"]


def traced():
    """The graph of a loop with a branch in it, as TensorFlow writes it."""

    @tf.function(input_signature=[tf.TensorSpec((2,), tf.float32, name="x")], autograph=False)
    def computes(x):
        def step(count, values):
            return count + 1, tf.cond(tf.reduce_sum(values) > 0, lambda: values * 2.0, lambda: values - x)

        return tf.while_loop(lambda count, values: count < 3, step, (0, x))[1]

    return computes.get_concrete_function().graph.as_graph_def()


def test_functions_have_the_same_names_in_every_trace():
    first, second = traced(), traced()
    names = [{function.signature.name for function in each.library.function} for each in (first, second)]
    assert not names[0] & names[1]
    for each in (first, second):
        number_functions(each)
    named = sorted(function.signature.name for function in first.library.function)
    assert named == sorted(function.signature.name for function in second.library.function)
    assert named == ["while_body", "while_cond", "while_cond_false", "while_cond_true"]
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        tf.import_graph_def(first, name="")
        end = first.node[-1].name
        given = np.float32([1, 2])
        np.testing.assert_array_equal(session.run(f"{end}:0", {"x:0": given}), given * 8)
