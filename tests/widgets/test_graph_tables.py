"""What follows from the graph alone is computed once; what follows from the plan is that of the present plan."""

import keras
from small_benches import tiny_model

import qdq_workbench as qdq
from qdq_widgets import Workbench, metrics
from qdq_widgets.graph_tables import layer_places, node_places, parameter_counts, tensor_numbers, weight_sizes
from qdq_widgets.header import summary_html
from qdq_widgets.panes.inspector import InspectorPane
from qdq_widgets.sides import plan_side
from qdq_widgets.state import plan_key
from qdq_widgets.variants import coverage


def planned(graph, **settings):
    spec = qdq.QuantizationSpec()
    if settings:
        spec.add("conv", **settings)
    return qdq.plan_placement(graph, quantization_spec=spec)


def test_a_shared_layer_has_the_place_of_its_first_call_and_one_set_of_weights():
    image = keras.Input((4, 4, 3), name="image")
    conv = keras.layers.Conv2D(3, 1, name="conv")
    graph = qdq.build_graph(keras.Model(image, conv(conv(image))))
    assert graph.once(node_places) == {"image": 0, "conv": 1, "conv#1": 2}
    assert graph.once(layer_places) == {"image": 0, "conv": 1}
    assert graph.once(tensor_numbers) == {"image": 0, "conv": 1, "conv#1": 2}
    assert graph.once(weight_sizes) == {"image": [], "conv": [("conv/kernel", 9), ("conv/bias", 3)]}
    assert graph.once(parameter_counts) == {"conv": 12}


def test_another_graph_has_its_own_tables():
    for name in ("conv", "other"):
        graph = qdq.build_graph(tiny_model(conv=name))
        assert name in graph.once(layer_places)
        assert name in graph.once(parameter_counts)


def test_sizes_and_coverage_follow_the_plan():
    graph = qdq.build_graph(tiny_model())
    plans = [planned(graph), planned(graph, quantize_weight=False), planned(graph)]
    kernel = 3 * 3 * 3 * 3
    sizes = [metrics.weight_bytes(plan).values["conv"] for plan in plans]
    assert [size - sizes[0] for size in sizes] == [0, 3 * kernel, 0]
    whole = [coverage(plan)[0] for plan in plans]
    assert [count - whole[0] for count in whole] == [0, -1, 0]
    assert len({coverage(plan)[1] for plan in plans}) == 1


def test_plans_have_equal_keys_where_their_placements_are_equal():
    graph = qdq.build_graph(tiny_model())
    first, other, again = (plan_key(planned(graph, quantize_weight=on)) for on in (True, False, True))
    assert first == again
    assert hash(first) == hash(again)
    assert first != other
    assert {first: "here"}[again] == "here"
    assert first != "a text"


def test_a_layer_that_is_called_twice_is_counted_once_everywhere():
    image = keras.Input((8, 8, 3), name="image")
    twice = keras.layers.Conv2D(3, 3, padding="same", name="twice")
    bench = Workbench(keras.Model(image, twice(twice(image))), target="tensorrt")
    assert len(bench.graph.nodes) == 3
    assert len(bench.graph.layers) == 2
    assert coverage(bench.plan) == (1, 1)
    assert "1 of 1 computing layers quantized" in summary_html(bench)
    assert plan_side(bench.plan).note.startswith("2 layers, ")
    bench.toggle("twice#1", "input")
    assert coverage(bench.plan) == (0, 1)  # one of its calls is not quantized
    bench.view.graph.select(["twice"])
    pane = bench.view.pane(InspectorPane)
    assert "1 layer, 2 calls" in pane._head.value
    bench.view.graph.select(["image", "twice"])
    assert "2 layers, 3 calls" in pane._head.value
