"""The code of a bench: arguments that are not the defaults, and the corrections in the order that gave the weights."""

import pytest

import qdq_workbench as qdq
from qdq_widgets.code import case_code, few_code, to_code
from qdq_widgets.corrections import Applied
from qdq_widgets.fits import Fit
from qdq_widgets.snapshots import CORRECTED, Snapshot
from qdq_widgets.state import BenchState

HOW = {"method": "percentile", "steps": 4, "batch_size": 16, "percentile": 99.9}
OTHER = {"method": "mse", "steps": None, "batch_size": 8}


class ModuleCase(qdq.CustomQDQInsertionCase):
    """A case of a module of the user's."""

    def __init__(self, limit=4):
        super().__init__()
        self.limit = limit

    def case(self, keras_model, qspec):
        return qspec

    class Inner(qdq.CustomQDQInsertionCase):
        """One inside of it."""

        def case(self, keras_model, qspec):
            return qspec


def applied(name, /, *, calibration=HOW, **fields):
    settings = {"samples": 64} if name not in ("equalize_scales", "clip_weights") else {"method": "mse"}
    return Applied(name, settings, calibration, **fields)


def lines_of(*corrections, training=(), fits=(), state=None, name="model"):
    work = Snapshot(CORRECTED if corrections else "calibrated", corrections=corrections, fits=fits)
    code = to_code(state or BenchState(qdq.QuantizationSpec()), name, work, training)
    return code.splitlines()


def behind_the_plan(lines):
    return lines[next(place for place, line in enumerate(lines) if line.startswith("plan = ")) + 1 :]


def spec_lines(spec):
    return lines_of(state=BenchState(spec))[2:-3]


# ---------------------------------------------------------------------- spec and cases


def test_an_entry_has_the_arguments_that_are_not_the_defaults():
    spec, config = qdq.QuantizationSpec(), qdq.LayerQuantizeConfig(weight={"num_bits": 4})
    spec.add("conv")
    spec.add("Dense", is_keras_class=True, quantize_input=False, quantize_weight=False, quantize_output=True)
    spec.add("b*", match="glob", quantization_index=[0, 2], quantize_config=config)
    made = "qdq.LayerQuantizeConfig(weight={'num_bits': 4})"
    assert spec_lines(spec) == [
        "spec = qdq.QuantizationSpec()",
        "spec.add('conv')",
        "spec.add('Dense', is_keras_class=True, quantize_input=False, quantize_weight=False, quantize_output=True)",
        f"spec.add('b*', quantization_index=[0, 2], quantize_config={made}, match='glob')",
    ]


def test_a_config_that_is_no_plain_settings_is_made_again_from_its_dictionary():
    class Own:
        layers = (
            qdq.LayerConfig("a", quantize_config=qdq.LayerQuantizeConfig()),
            qdq.LayerConfig("b", quantize_config="a config of the user's own"),
        )

        def to_dict(self):
            return {"layers": [1]}

    assert spec_lines(Own()) == ["spec = qdq.QuantizationSpec.from_dict({'layers': [1]})"]


def test_cases_are_imported_once_and_called_with_their_arguments():
    cases = (qdq.AutoQDQCase("litert"), ModuleCase(5), ModuleCase(), ModuleCase.Inner())
    lines = lines_of(state=BenchState(qdq.QuantizationSpec(), cases, "partial", "litert"), name="net")
    assert lines[:2] == ["import qdq_workbench as qdq", f"from {ModuleCase.__module__} import ModuleCase"]
    assert lines[2] == ""
    assert "cases = [qdq.AutoQDQCase('litert'), ModuleCase(5), ModuleCase(), ModuleCase.Inner()]" in lines
    assert "plan = qdq.plan_placement(net, 'partial', spec, cases, target='litert')" in lines
    assert lines[-1] == "q_model = qdq.quantize_model(net, plan=plan)"


def test_a_class_that_cannot_be_imported_is_to_be_defined_first(monkeypatch):
    class LocalCase(qdq.CustomQDQInsertionCase):
        def case(self, keras_model, qspec):
            return qspec

    assert case_code(LocalCase()) == (
        "",
        "LocalCase()",
        "# LocalCase is your own class; define it before these lines.",
    )
    monkeypatch.setattr(ModuleCase, "__module__", "__main__")
    statement, expression, note = case_code(ModuleCase(3))
    assert (statement, expression) == ("", "ModuleCase(3)")
    assert "define it before these lines" in note
    assert note in lines_of(state=BenchState(qdq.QuantizationSpec(), (ModuleCase(3),)))


def test_arguments_that_no_code_can_hold_are_to_be_written_by_hand():
    case = ModuleCase(object())
    statement, expression, note = case_code(case)
    assert (statement, expression) == (f"from {ModuleCase.__module__} import ModuleCase", "ModuleCase()")
    assert note == "# ModuleCase was made with settings of its own: write them into the brackets below."


@pytest.mark.parametrize("module", ["my_cases", "qdq_workbench_of_mine"])
def test_a_users_class_with_the_name_of_one_of_the_librarys_is_imported_from_its_module(module):
    own = type("BNQDQCase", (ModuleCase,), {"__module__": module})
    assert case_code(own()) == (f"from {module} import BNQDQCase", "BNQDQCase()", "")


# ---------------------------------------------------------------------- the work


def test_without_corrections_there_is_the_quantized_model_alone():
    assert behind_the_plan(lines_of()) == ["q_model = qdq.quantize_model(model, plan=plan)"]
    assert to_code(BenchState(qdq.QuantizationSpec())) == "\n".join([*lines_of(), ""])


def test_corrections_of_the_float_model_come_before_the_calibration_and_the_others_behind_it():
    corrections = (applied("equalize_scales"), applied("smooth_scales", data="list"), applied("gptq_weights"))
    plan = "plan = qdq.plan_placement(corrected, 'full', spec, cases, target='tensorrt')"
    assert behind_the_plan(lines_of(*corrections, training=["q_model.fit(...)"], name="net")) == [
        "# calibration_data: the samples that the bench calibrates on, without labels",
        "corrected = qdq.correction.equalize_scales(net, method='mse')",
        plan,
        "corrected = qdq.correction.smooth_scales(corrected, [part[:64] for part in calibration_data], plan=plan)",
        plan,
        "q_model = qdq.quantize_model(corrected, plan=plan)",
        "qdq.calibrate(q_model, calibration_data, 'percentile', steps=4, batch_size=16, percentile=99.9)",
        "qdq.correction.gptq_weights(q_model, calibration_data[:64])",
        "q_model.fit(...)",
    ]


@pytest.mark.parametrize("learned", [True, False])
def test_the_model_before_clipping_is_kept_where_rounding_is_learned_from_it(learned):
    corrections = (applied("equalize_scales"), applied("clip_weights"), applied("learn_rounding"))
    lines = behind_the_plan(lines_of(*corrections[: 3 if learned else 2]))
    assert ("reference = corrected" in lines) is learned
    if learned:
        assert lines.index("reference = corrected") < lines.index(
            "corrected = qdq.correction.clip_weights(corrected, method='mse', plan=plan)"
        )
        assert lines[-1] == "qdq.correction.learn_rounding(q_model, calibration_data[:64], reference=reference)"


def test_rounding_that_nothing_was_clipped_before_has_no_reference():
    lines = lines_of(applied("equalize_scales"), applied("learn_rounding"), applied("estimate_statistics"))
    assert not [line for line in lines if "reference" in line]


def test_what_came_behind_training_stands_behind_it_with_the_calibration_of_before():
    statistics = applied("estimate_statistics", trained=True)
    fit = Fit(1, None, 32, OTHER)
    lines = behind_the_plan(lines_of(statistics, training=["q_model.fit(...)"], fits=(fit,)))
    assert lines[2:] == [
        "qdq.calibrate(q_model, calibration_data, 'mse', steps=None, batch_size=8)",
        "q_model.fit(...)",
        "qdq.correction.estimate_statistics(q_model, calibration_data[:64])",
    ]
    without = lines_of(statistics)
    assert any("'percentile'" in line for line in without)
    first = lines_of(applied("gptq_weights"), statistics, fits=(fit,))
    assert any("'percentile'" in line for line in first)


def test_ranges_that_nobody_knows_are_not_found_again():
    lines = lines_of(applied("gptq_weights", calibration={}))
    assert not [line for line in lines if "calibrate(" in line]


@pytest.mark.parametrize(
    ("kind", "count", "code"),
    [
        ("array", 5, "x[:5]"),
        ("list", 5, "[part[:5] for part in x]"),
        ("dict", 5, "{name: part[:5] for name, part in x.items()}"),
        ("dataset", 1, "x.take(1)"),
        ("dataset", 63, "x.take(1)"),
        ("dataset", 64, "x.take(2)"),
        ("stream", 5, "x"),
    ],
)
def test_the_first_samples_of_every_kind_of_data(kind, count, code):
    assert few_code("x", kind, count) == code
