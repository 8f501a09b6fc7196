import pytest
from mock_graphs import GraphMaker, chain, residual

from qdq_workbench import cases
from qdq_workbench.cases.base import CustomQDQInsertionCase
from qdq_workbench.errors import PlacementConflictError, SpecError
from qdq_workbench.planning import plan_placement
from qdq_workbench.spec import QuantizationSpec


def found(case, graph, spec=None):
    result = case.case_for_graph(graph, spec or QuantizationSpec())
    return {entry.name: entry.quantization_index for entry in result.layers}


class TestResidual:
    def test_only_the_skip_branch_is_quantized(self):
        assert found(cases.ResidualConnectionQDQCase(), residual("Conv2D")) == {"add": [1]}

    def test_of_two_convolutions_the_first_stays(self):
        assert found(cases.ResidualConnectionQDQCase(), residual("Conv2D", skip=("Conv2D",))) == {"add": [1]}

    def test_the_convolution_may_be_the_second_input(self):
        assert found(cases.ResidualConnectionQDQCase(), residual("MaxPooling2D", skip=("Conv2D",))) == {"add": [0]}

    def test_without_a_convolution_all_inputs_are_quantized(self):
        assert found(cases.ResidualConnectionQDQCase(), residual("MaxPooling2D")) == {"add": [0, 1]}

    def test_an_operation_counts_as_an_add(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("Add", "plus", "conv", "image", is_operation=True)
        assert found(cases.ResidualConnectionQDQCase(), maker.graph("plus")) == {"plus": [1]}

    def test_a_sum_with_a_constant_and_a_convolution_needs_nothing(self):
        maker = GraphMaker()
        maker.add("Conv2D", "conv", "image")
        maker.add("Add", "plus", "conv", is_operation=True)
        assert found(cases.ResidualConnectionQDQCase(), maker.graph("plus")) == {}

    def test_a_sum_with_a_constant_is_no_residual_connection(self):
        maker = GraphMaker()
        maker.add("Add", "plus", "image", is_operation=True)
        assert found(cases.ResidualConnectionQDQCase(), maker.graph("plus")) == {}

    @pytest.mark.parametrize(
        "entry", [{"name": "add"}, {"name": "a*", "match": "glob"}, {"name": "a.d", "match": "regex"}]
    )
    def test_what_the_user_names_is_the_users(self, entry):
        spec = QuantizationSpec()
        spec.add(**entry)
        assert found(cases.ResidualConnectionQDQCase(), residual("Conv2D"), spec) == {}


def test_batch_normalization_behind_a_convolution_is_left_alone():
    graph = chain(
        ("Conv2D", "conv"), ("BatchNormalization", "behind"), ("ReLU", "relu"), ("BatchNormalization", "alone")
    )
    assert found(cases.BNQDQCase(), graph) == {"alone": None}


def test_maximum_pooling():
    graph = chain(("MaxPooling2D", "pool"), ("AveragePooling2D", "average"))
    assert found(cases.MaxPoolQDQCase(), graph) == {"pool": None}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (cases.ResNetV1QDQCase(), {"add": [1]}),
        (cases.MobileNetQDQCase(), {"add": [1]}),
        (cases.InceptionQDQCase(), {"pool": None}),
        (cases.ResNetV2QDQCase(), {"add": [1], "norm": None, "pool": None}),
        (cases.EfficientNetQDQCase(), {"add": [1], "scale": [0, 1]}),
    ],
)
def test_network_cases_are_made_of_ideas(case, expected):
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Add", "add", "conv", "image")
    maker.add("BatchNormalization", "norm", "add")
    maker.add("MaxPooling2D", "pool", "norm")
    maker.add("Multiply", "scale", "pool", "norm")
    assert found(case, maker.graph("scale")) == expected
    assert len(case.info()) > 20


@pytest.mark.parametrize("returned", [None, QuantizationSpec()])
def test_a_case_may_find_nothing(returned):
    class Nothing(cases.CustomQDQInsertionCase):
        def case(self, keras_model, qspec):
            return returned

    keras = pytest.importorskip("keras")
    image = keras.Input((4,))
    model = keras.Model(image, keras.layers.Dense(2, name="head")(image))
    assert len(plan_placement(model, custom_qdq_cases=[Nothing()]).tensors) == 2


def test_bad_cases_are_refused():
    graph = chain(("Conv2D", "conv"))
    with pytest.raises(SpecError, match=r"instances of CustomQDQInsertionCase, such as \[ResNetV1QDQCase\(\)\]"):
        plan_placement(graph, custom_qdq_cases=[cases.ResNetV1QDQCase])

    class Wrong(cases.GraphCase):
        def case_for_graph(self, graph, qspec):
            return ["conv"]

    with pytest.raises(SpecError, match="must return a QuantizationSpec"):
        plan_placement(graph, custom_qdq_cases=[Wrong()])


def test_a_single_case_is_no_list_of_cases():
    with pytest.raises(SpecError, match="must be a list of cases"):
        plan_placement(residual("Conv2D"), custom_qdq_cases=cases.MaxPoolQDQCase())


def test_a_case_that_needs_layers_says_so_on_a_graph():
    class ByLayers(cases.CustomQDQInsertionCase):
        def case(self, keras_model, qspec):
            return QuantizationSpec()

    with pytest.raises(SpecError, match="Pass the model instead"):
        plan_placement(chain(("Conv2D", "conv")), custom_qdq_cases=[ByLayers()])


def test_a_case_cannot_change_the_users_spec():
    class Greedy(cases.GraphCase):
        def case_for_graph(self, graph, qspec):
            qspec.add("conv", quantize_weight=False)
            return QuantizationSpec()

    spec = QuantizationSpec()
    plan_placement(chain(("Conv2D", "conv")), quantization_spec=spec, custom_qdq_cases=[Greedy()])
    assert spec.layers == []


def test_a_case_of_the_graph_cannot_change_what_the_next_one_reads():
    class Adding(cases.GraphCase):
        def case_for_graph(self, graph, qspec):
            qspec.add("add")
            return qspec

    alone = plan_placement(residual("Conv2D"), custom_qdq_cases=[cases.ResidualConnectionQDQCase()])
    both = [cases.ResidualConnectionQDQCase(), Adding()]
    for order in (both, both[::-1]):
        with pytest.raises(PlacementConflictError, match="ResidualConnectionQDQCase"):
            plan_placement(residual("Conv2D"), custom_qdq_cases=order)
    assert alone.for_layer("add").author == "ResidualConnectionQDQCase"


@pytest.mark.parametrize(("args", "kwargs"), [((3,), {}), ((), {"most": 3}), ((3,), {"named": "stem"}), ((), {})])
def test_a_case_knows_how_it_was_made(args, kwargs):
    """A saved workbench makes it again from these."""

    class Own(CustomQDQInsertionCase):
        def __init__(self, most=1, named=""):
            self.most = most

        def case(self, keras_model, qspec):
            return QuantizationSpec()

    assert Own(*args, **kwargs).arguments == (args, kwargs)
