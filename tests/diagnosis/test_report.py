"""What a diagnosis says, and which fixes it keeps: on figures and outputs that stand in for models."""

import json
import math
from types import SimpleNamespace

import pytest

import qdq_workbench as qdq
from qdq_workbench.analysis.metrics import METRICS
from qdq_workbench.diagnosis import report as report_module
from qdq_workbench.diagnosis.fixes import Fix
from qdq_workbench.diagnosis.report import Cause, Diagnosis, Patient
from qdq_workbench.errors import DataError, SpecError

SEEN, GIVEN, OTHERS = "seen", "given", "others"


def fix(name, noise, value=0.0, **fields):
    """Return a fix that adds to the value of a model, a tuple (value, noise), and sets its noise."""
    return Fix(name, lambda model, data: (model[0] + value, noise, model[2] + ((name, data),)), **fields)


def cause(kind="outlier_channel", share=0.5, *fixes, **fields):
    return Cause(
        kind, f"{kind}_layer", "x", share, "seen <here>", fixes[0].text if fixes else "none", fixes=fixes, **fields
    )


def diagnosis(*causes, metric="cosine", patient=None, **fields):
    values = {"float_value": 1.0, "quantized_value": 0.75, "weights_value": 0.9, "activations_value": 0.8}
    values |= {"noise": 0.1, "weights_share": 0.5, "samples": 8, "complete": True, "unit": "", "higher_is_better": True}
    return Diagnosis("net", "tensorrt", metric, causes=causes, patient=patient, **{**values, **fields})


@pytest.fixture
def treat(monkeypatch):
    """Return a function that applies causes of a diagnosis to a model of value 0 and noise 1."""
    monkeypatch.setattr(report_module, "model_outputs", lambda model, _: model)
    monkeypatch.setattr(report_module, "noise_of", lambda _, model: model[1])

    def apply(causes, *chosen, needs_labels=False, higher=True, noise=1.0, value=0.0, **arguments):
        metric = SimpleNamespace(needs_labels=needs_labels, measure=lambda _, model, labels: model[0], name="own")
        samples = SimpleNamespace(batches=SEEN, labels=[])
        patient = Patient((value, noise, ()), samples, GIVEN, metric, ())
        found = diagnosis(*causes, patient=patient, higher_is_better=higher)
        return found.apply(*chosen, verbose=False, **arguments)[2]

    return apply


class TestApply:
    def test_the_first_fix_that_removes_half_of_the_share_is_taken(self, treat):
        mild, strong = fix("mild", 0.76), fix("strong", 0.75, 1.0)
        one = cause("outlier_channel", 0.5, mild, strong)
        assert treat([one], 0) == (("strong", GIVEN),)
        assert (one.fix, one.gain, one.applied) == ("strong", 1.0, True)
        enough = cause("outlier_channel", 0.4, mild, strong)
        assert treat([enough], 0) == (("mild", GIVEN),)

    def test_else_it_is_the_one_with_the_least_error(self, treat):
        one = cause("outlier_channel", 1.0, fix("a", 0.9), fix("b", 0.6), fix("c", 0.7))
        assert treat([one], 0) == (("b", GIVEN),)

    def test_where_the_data_may_be_the_cause_they_are_changed_too(self, treat):
        def anew(model, data):
            return 1.0, 0.2 if data == SEEN else 0.9, (*model[2], ("anew", data))

        first = cause("outlier_channel", 0.5, Fix("anew", anew, is_about_data=True))
        later = cause("dead_channels", 0.1, fix("later", 0.1))
        assert treat([first, later], 0, 1) == (("anew", SEEN), ("later", SEEN))
        assert treat([later], 0) == (("later", GIVEN),)
        assert treat([cause("outlier_channel", 0.5, Fix("anew", anew))], 0) == (("anew", GIVEN),)

    def test_without_causes_only_what_gains_is_kept(self, treat):
        causes = [
            cause("outlier_channel", 0.5, fix("worse", 0.1, -1.0)),
            cause("dead_channels", 0.5, fix("equal", 0.1)),
            cause("coarse_grid", 0.5, fix("better", 0.1, 0.5)),
        ]
        assert treat(causes) == (("better", GIVEN),)
        assert [(each.gain, each.applied) for each in causes] == [(-1.0, False), (0.0, False), (0.5, True)]
        # What is asked for is done.
        assert treat(causes, 0) == (("worse", GIVEN),)
        assert causes[0].applied

    def test_of_a_metric_of_which_less_is_better_a_fall_is_a_gain(self, treat):
        causes = [
            cause("outlier_channel", 0.5, fix("fall", 0.1, -1.0)),
            cause("dead_channels", 0.5, fix("rise", 0.1, 1.0)),
        ]
        assert treat(causes, higher=False) == (("fall", GIVEN),)
        assert [each.gain for each in causes] == [1.0, -1.0]

    def test_only_labels_tell_the_gain_of_another_function(self, treat):
        other = cause("stale_statistics", 0.5, fix("statistics", 0.1, 1.0), changes_function=True)
        assert treat([other]) == ()
        assert (other.gain, other.applied) == (None, False)
        assert treat([other], 0) == (("statistics", GIVEN),)
        assert (other.gain, other.applied) == (None, True)
        assert treat([other], needs_labels=True) == (("statistics", GIVEN),)
        assert other.gain == 1.0

    def test_outputs_that_are_no_numbers_are_kept_only_where_there_were_none_before(self, treat):
        broken = cause("outlier_channel", 0.5, fix("broken", math.inf))
        assert treat([broken], 0) == ()
        assert not broken.applied
        assert treat([broken], 0, noise=math.inf) == (("broken", GIVEN),)
        # Half of an infinite error is infinite, so no fix is enough: the best one is taken.
        both = cause("outlier_channel", 0.5, fix("a", math.inf), fix("b", 5.0))
        assert treat([both], 0, noise=math.inf) == (("b", GIVEN),)

    @pytest.mark.parametrize(("before", "change", "gain"), [(0.0, math.nan, -math.inf), (math.nan, 0.0, 0.0)])
    def test_nan_is_worse_than_every_number(self, treat, before, change, gain):
        one = cause("outlier_channel", 0.5, fix("nan", 0.1, change))
        treat([one], 0, value=before)
        assert one.gain == gain
        better = cause("outlier_channel", 0.5, Fix("number", lambda *_: (0.5, 0.1, ("number",))))
        treat([better], 0, value=math.nan)
        assert better.gain == math.inf

    def test_it_tells_how_far_it_is_and_can_be_stopped(self, treat):
        causes = [cause(kind, 0.5, fix(kind, 0.1, 1.0)) for kind in ("outlier_channel", "dead_channels")]
        told = []
        treat(causes, progress=lambda *step: told.append(step))
        assert told == [(0, 2, causes[0].title), (1, 2, causes[1].title), (2, 2, "")]
        told.clear()
        done = treat(causes, progress=lambda *step: told.append(step), stop=lambda: bool(told))
        assert (done, len(told)) == ((("outlier_channel", GIVEN),), 1)

    def test_a_metric_that_needs_labels_is_refused_without(self, treat):
        samples = SimpleNamespace(batches=SEEN, labels=None)
        patient = Patient((0.0, 1.0, ()), samples, GIVEN, METRICS["accuracy"], ())
        with pytest.raises(DataError, match="compares with labels"):
            diagnosis(cause(), patient=patient).apply(verbose=False)


class TestCauses:
    def test_a_cause_is_named_by_itself_its_index_or_its_kind(self):
        causes = (cause("outlier_channel"), cause("dead_channels"), cause("outlier_channel"))
        found = diagnosis(*causes)
        assert [found._cause(given) for given in (causes[2], 1, "outlier_channel")] == [causes[2], causes[1], causes[0]]
        for given in (cause("outlier_channel"), 3, -1, True, "dead_chanels", None):
            with pytest.raises(SpecError, match="The diagnosis has no such cause"):
                found._cause(given)
        with pytest.raises(SpecError, match="dead_channels"):
            found._cause("dead_chanels")


class TestText:
    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"quantized_value": 1.0}, "The metric shows no loss on these samples"),
            ({"quantized_value": 0.75, "higher_is_better": False}, "The metric shows no loss"),
            ({"weights_share": 0.75}, "The weights carry 75% of the error"),
            ({"weights_share": 0.25}, "The activations carry 75% of the error"),
            ({"weights_share": 0.74}, r"Weights (74%) and activations (26%) both carry"),
        ],
    )
    def test_the_verdict_tells_weights_from_activations(self, fields, says):
        assert diagnosis(cause(), **fields).verdict.startswith(says)

    def test_without_causes_nothing_is_blamed(self):
        assert diagnosis(quantized_value=0.0).verdict.startswith("No cause was found")

    def test_a_loss_is_positive_where_the_quantized_model_is_worse(self):
        assert diagnosis().loss == 0.25
        assert diagnosis(higher_is_better=False).loss == -0.25
        assert diagnosis(float_value=math.inf, quantized_value=math.inf).loss == 0.0

    def test_every_cause_has_its_evidence_fix_and_gain(self):
        done = cause("outlier_channel", 0.6, gain=0.125, applied=True)
        open_one = cause("stale_statistics", 0.1, applied=True, changes_function=True)
        text = diagnosis(done, open_one, cause("dead_channels", 0.3), unit="dB").summary().splitlines()
        assert text[0] == "Diagnosis of net for tensorrt on 8 samples"
        assert text[1].startswith("cosine dB: float 1")
        assert text[3:6] == [
            f"  1. {done.title}, outlier_channel_layer: 60% of the error",
            "     seen: seen <here>",
            "     done: none (measured: +0.125 dB)",
        ]
        assert text[6].endswith("stale_statistics_layer: beside the error of quantization")
        assert text[8] == "     done: none (only labels would tell the gain)"
        assert text[11] == "     fix: none"

    def test_names_are_escaped_in_notebooks(self):
        page = diagnosis(cause())._repr_html_()
        assert "seen &lt;here&gt;" in page
        assert "<here>" not in page
        assert page.count("<tr>") == 2

    def test_what_is_saved_is_json(self, tmp_path):
        found = diagnosis(cause(gain=math.inf), float_value=math.inf)
        data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert "patient" not in data
        assert (data["format"], data["version"], data["verdict"]) == ("qdq-workbench/diagnosis", 1, found.verdict)
        (one,) = data["causes"]
        assert one["title"] == found.causes[0].title
        assert set(one) == {"kind", "title", "layer", "tensor", "share", "evidence", "fix", "gain", "applied"}
        assert data["float_value"] == one["gain"] == "inf"
        assert qdq.diagnosis.Cause is Cause
