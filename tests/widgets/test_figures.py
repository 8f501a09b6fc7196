"""Figures are pure functions of what they show."""

import dataclasses
import threading
from types import SimpleNamespace

import plotly.graph_objects as go
import pytest
from project import ROOT

from qdq_widgets.curves import Curves, Scores, TrainingRun, interval
from qdq_widgets.figures.curves import curve_traces, curves_figure
from qdq_widgets.figures.live import live_figure
from qdq_widgets.figures.ranges import histogram_figure, range_rows, ranges_figure, short
from qdq_widgets.figures.scale import COLORS, scale_colors
from qdq_widgets.figures.script import shared_script
from qdq_widgets.figures.sensitivity import metric_figure
from qdq_widgets.histograms import Histogram
from qdq_widgets.metrics import Metric
from qdq_widgets.replacing import close_all


def scores(accuracy, loss=0.5):
    return Scores(loss, {"accuracy": accuracy})


def run(name="QAT 1", epochs=2, state="done"):
    trace = tuple((step / 4, 1.0 / (step + 1)) for step in range(4 * epochs))
    return TrainingRun(
        name,
        "tensorrt",
        7,
        trace,
        tuple(map(float, range(epochs + 1))),
        tuple(scores(0.9 + 0.01 * epoch) for epoch in range(epochs + 1)),
        state,
    )


def test_nothing_scored_yet_is_an_empty_figure_with_both_columns():
    traces = curve_traces(Curves())
    assert [trace["column"] for trace in traces] == [1, 1, 2, 2]
    assert all(trace["x"] == [] for trace in traces)
    assert len(curves_figure(Curves()).data) == 4


def test_the_levels_span_the_longest_run_and_lines_keep_their_places():
    curves = Curves(scores(0.95), scores(0.94), (run(), run("QAT 2", 5)))
    traces = curve_traces(curves)
    assert traces[0]["x"] == [0.0, 5.0]
    assert traces[0]["y"] == [0.95, 0.95]
    assert len(traces) == 4 + 2 * 3
    assert traces[4]["y"] == pytest.approx([0.9, 0.91, 0.92])
    longer = curve_traces(curves.with_run(run("QAT 2", 6)))
    assert [trace["name"] for trace in longer] == [trace["name"] for trace in traces]


def ends_of(curves, samples=None):
    options = curves_figure(curves, samples).layout.yaxis.autorangeoptions
    return options.minallowed, options.maxallowed


def test_an_accuracy_axis_begins_a_little_below_the_lowest_accuracy():
    near = Curves(scores(0.99), scores(0.99))  # equal lines: plotly alone would go from 0 to 1
    assert ends_of(near) == pytest.approx((0.98, 1.0))
    assert ends_of(Curves(scores(0.95), scores(0.45))) == pytest.approx((0.425, 0.975))
    assert ends_of(Curves(scores(1.0), scores(0.0))) == pytest.approx((-0.01, 1.01))
    assert ends_of(Curves(scores(0.95), scores(float("nan")))) == pytest.approx((0.94, 0.96))
    unscored = Curves(runs=(TrainingRun("QAT 1", "tensorrt", 1),))
    assert ends_of(unscored) == (None, None)


def test_an_accuracy_axis_shows_how_little_a_sample_is():
    curves = Curves(scores(1.0), scores(1.0), (run(),))
    assert ends_of(Curves(scores(1.0), scores(1.0)), 192) == pytest.approx((interval(1.0, 192)[0] - 0.01, 1.01))
    assert ends_of(curves, 192) == pytest.approx((0.895, 1.005), abs=0.006)
    error = Curves(Scores(0.5, {"mae": 0.1}))
    assert curves_figure(error, 192).layout.yaxis.autorangeoptions.to_plotly_json() == {}


def test_a_run_that_did_not_end_says_so():
    assert curve_traces(Curves(runs=(run(state="stopped"),)))[4]["name"] == "QAT 1 (stopped)"


def test_names_reach_plotly_as_text():
    assert curve_traces(Curves(runs=(run("<a href=x>"),)))[4]["name"] == "&lt;a href=x&gt;"
    assert short("<b>") == "&lt;b&gt;"
    assert len(short("x" * 300)) < 45


def test_curves_go_through_json():
    import json

    curves = Curves(scores(0.95), None, (run(), run("other", 1, "stopped")))
    assert Curves.from_dict(json.loads(json.dumps(curves.to_dict()))) == curves


def test_the_summary_names_every_model():
    text = Curves(scores(0.95), scores(0.94), (run(),)).summary()
    assert [line.split("  ")[0].strip() for line in text.splitlines()] == ["FP32", "calibrated (PTQ)", "QAT 1"]
    assert Curves().summary() == "Nothing has been evaluated yet."


def test_the_range_of_every_quantized_tensor_is_a_bar(calibrated):
    rows = range_rows(calibrated.calibration, calibrated.plan)
    assert {name for name, _, _ in rows} == {t.name for t in calibrated.plan.tensors if t.kind == "activation"}
    widths = [high - low for _, low, high in rows]
    assert widths == sorted(widths, reverse=True)
    bar = ranges_figure(calibrated.calibration, calibrated.plan).data[0]
    assert len(bar.y) == len(rows)
    assert bar.base[-1] == rows[0][1]


def test_the_histogram_shows_both_ends_of_the_range():
    edges = (0.0, 1.0, 2.0, 3.0)
    quantized = Histogram("<t>", (1, 5, 2), edges, 0.1, 2.9, 0.125, (-2.9, 2.9), "int8")
    plain = Histogram("free", (1, 5, 2), edges, 0.0, 3.0, 0.0)
    weight = Histogram("conv/kernel", (1, 5, 2), edges, 0.0, 3.0, 0.0, (-3.0, 3.0), "int8/axis 3, 4 scales", "weight")
    figure = histogram_figure([quantized, plain, weight])
    assert list(figure.data[0].x) == [0.5, 1.5, 2.5]
    marks = {axis: [shape.x0 for shape in figure.layout.shapes if shape.xref == axis] for axis in ("x", "x2", "x3")}
    # The range's upper end is the grid's: one line says both.
    assert marks == {"x": [-2.9, 2.9, 0.1], "x2": [0.0, 3.0], "x3": [-3.0, 3.0]}
    titles = [note.text for note in figure.layout.annotations][:3]
    assert titles[0].startswith("&lt;t&gt;: int8; 12.5 % of the values saturate")
    assert titles[1] == "free: float (activation)"
    assert "4 scales" in titles[2]


def test_a_figure_goes_to_the_page_as_a_whole(monkeypatch):
    opened = []
    monkeypatch.setattr(go.FigureWidget, "open", lambda figure: opened.append(figure.get_state()))
    live_figure(go.Figure(go.Bar(x=[1, 2]), {"height": 200}))
    [state] = opened
    assert [trace["x"] for trace in state["_widget_data"]] == [[1, 2]]
    assert state["_widget_layout"]["height"] == 200
    assert state["_config"]["responsive"]
    assert state["_config"]["showSendToCloud"] is False  # plotly's own default offers to upload the chart


def test_the_script_of_plotly_is_sent_once_for_all_figures():
    figures = [live_figure(go.Figure(go.Bar(x=[number]))) for number in range(2)]
    [script] = {figure._script for figure in figures}
    assert all(len(figure.get_state()["_esm"]) < 2_000 for figure in figures)
    holder = shared_script()
    assert holder.model_id == script
    assert holder.text == str(go.FigureWidget._esm)
    assert len(holder.text) > 1_000_000
    for figure in figures:
        close_all(figure)
    assert live_figure(go.Figure())._script == script  # open still
    holder.close()
    assert live_figure(go.Figure())._script == shared_script().model_id != script


def test_a_page_that_is_loaded_later_gets_the_figure_as_it_is_now():
    figure = live_figure(go.Figure(go.Scatter(x=[1], y=[1]), {"height": 200}))
    figure.data[0].y = [5]
    figure.add_scatter(x=[2], y=[3])
    figure.update_layout(height=300)
    for state in (figure.get_state(), figure.get_state({"_widget_data", "_widget_layout"})):
        assert [trace["y"] for trace in state["_widget_data"]] == [[5], [3]]
        assert state["_widget_layout"]["height"] == 300


class SlowAnswer(dict):
    """A state from the page that takes long to be set."""

    def __init__(self, state):
        super().__init__(state)
        self.begun, self.end = threading.Event(), threading.Event()

    def __iter__(self):
        self.begun.set()
        assert self.end.wait(10)
        return super().__iter__()


def test_a_change_while_the_page_answers_the_one_before_is_sent():
    figure = live_figure(go.Figure(go.Scatter(x=[], y=[])))
    sent = []
    figure.observe(lambda change: sent.append(change.new), "_py2js_update")

    def change():
        with figure.changes, figure.batch_update():
            figure.data[0].x = figure.data[0].y = [1, 2]

    answer = SlowAnswer({"_js2py_traceDeltas": None})
    page, work = threading.Thread(target=figure.set_state, args=(answer,)), threading.Thread(target=change)
    page.start()
    assert answer.begun.wait(10)
    work.start()
    work.join(0.2)  # without the lock it ends here, and what it sent is lost
    answer.end.set()
    page.join()
    work.join()
    assert sent[0]["style_data"] == {"x": [[1, 2]], "y": [[1, 2]]}


def test_the_worst_layer_is_on_top_longest_and_in_the_graphs_colour():
    values = {"good": 40.0, "bad": 5.0, "fair": 20.0}
    bar = metric_figure(Metric("SQNR", values, "dB", "high")).data[0]
    assert list(bar.y) == ["good", "fair", "bad"]  # the last one is on top
    lengths = [abs(length) for length in bar.x]
    assert lengths == sorted(lengths)
    assert [start + length for start, length in zip([bar.base] * 3, bar.x, strict=True)] == pytest.approx([40, 20, 5])
    assert list(bar.marker.color) == scale_colors([40.0, 20.0, 5.0])
    assert metric_figure(Metric("SQNR", values, "dB", "high")).layout.xaxis.autorange == "reversed"
    bar = metric_figure(Metric("time", values, "ms", "low")).data[0]
    assert list(bar.y) == ["bad", "fair", "good"]
    assert bar.base == 0
    assert list(bar.x) == [5, 20, 40]


def test_long_names_that_differ_in_the_middle_have_bars_of_their_own(calibrated):
    ends = "backbone/stage_1/residual_block_", "/inner/branch/convolution_with_a_long_name"
    values = {number.join(ends): float(number) for number in "123"}
    figure = metric_figure(Metric("time", values, "ms", "low"))
    assert len(set(figure.data[0].y)) == 3
    assert figure.layout.yaxis.tickvals == figure.data[0].y
    assert set(figure.layout.yaxis.ticktext) == {short("1".join(ends))}
    result, plan = calibrated.calibration, calibrated.plan
    names = {tensor.tensor: f"{ends[0]}{place}{ends[1]}" for place, tensor in enumerate(plan.tensors)}
    tensors = [dataclasses.replace(tensor, tensor=names[tensor.tensor]) for tensor in plan.tensors]
    ranges = {names[name]: ends for name, ends in result.ranges.items() if name in names}
    bars = ranges_figure(dataclasses.replace(result, ranges=ranges), SimpleNamespace(tensors=tensors)).data[0]
    assert len(set(bars.y)) == len(bars.y) > 3


def test_colours_are_those_of_the_graph():
    source = (ROOT / "widgets" / "src" / "colors.ts").read_text()
    assert ", ".join(f'"{color}"' for color in COLORS) in source
    assert scale_colors([1.0, 10.0, 100.0], is_log=True)[1] == COLORS[4]
    assert scale_colors([]) == []
