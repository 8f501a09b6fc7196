"""What is found once per graph or node stays with the object, and in its process."""

import copy
import pickle

from mock_graphs import chain


def test_what_was_found_once_does_not_travel_to_other_processes():
    graph = chain(("Dense", "head"))
    fresh = pickle.dumps(graph)
    for each in (graph, *graph.nodes):
        assert each.once(lambda found: found.name) == each.name

    assert pickle.dumps(graph) == fresh
    assert copy.deepcopy(graph) == graph
