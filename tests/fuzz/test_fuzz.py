"""Random models, specifications and targets: what always holds. `make fuzz` runs many more of them.

Behind the first ten models Hypothesis varies the ones that it has drawn. More examples than these try no further kind
of step: 20 plans have all 21 of them, and 10 models go the whole way with 19.
"""

import pathlib
import tempfile

import hypothesis
import pytest
from fuzz import invariants
from fuzz.graphs import data_of, programs
from fuzz.specs import specs
from hypothesis import strategies as st

import qdq_workbench as qdq

TARGETS = st.sampled_from(["tensorrt", "onnxruntime"])
ALWAYS_THE_SAME = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
}

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning:keras")


@hypothesis.settings(max_examples=20, **ALWAYS_THE_SAME)
@hypothesis.given(programs(), st.data())
def test_planning_is_a_pure_function(program, data):
    model = program.build()
    spec = data.draw(specs(qdq.build_graph(model)))
    invariants.check_planning(model, spec, data.draw(TARGETS))


@pytest.mark.slow
@hypothesis.settings(max_examples=10, **ALWAYS_THE_SAME)
@hypothesis.given(programs(min_steps=3), st.data())
def test_the_whole_way(program, data):
    model = program.build()
    spec = data.draw(specs(qdq.build_graph(model)))
    with tempfile.TemporaryDirectory() as folder:
        try:
            q_model = invariants.check_model(model, spec, data.draw(TARGETS), pathlib.Path(folder), program.seed)
        except qdq.errors.UnsupportedModelError:
            return
    if q_model is not None and data.draw(st.booleans()):
        invariants.check_training(model, q_model, data_of(model, program.seed))
