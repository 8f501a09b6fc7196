"""The static picture of a plan: an SVG image that says what the target executes."""

import json
import types
import xml.etree.ElementTree as ET

import keras
import pytest
from ipywidgets.embed import dependency_state
from keras import layers
from small_benches import tiny_data, tiny_model

import qdq_workbench as qdq
from qdq_widgets import BenchError, Workbench, write_graph_picture
from qdq_widgets.graph_page import explained
from qdq_widgets.picture import graph_picture

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plan, **more):
    return ET.fromstring(graph_picture(plan, explained(plan), **more))  # noqa: S314 - our own text


def texts(image):
    return [element.text for element in image.iter(f"{SVG}text")]


def titles(image):
    return [element.text for element in image.iter(f"{SVG}title")]


def test_a_kernel_is_one_card_with_what_is_fused_into_it():
    image = drawn(qdq.plan_placement(tiny_model(), custom_qdq_cases=[qdq.AutoQDQCase()], target="onnxruntime"))
    assert titles(image) == [
        "image (InputLayer): input",
        "stem (Conv2D): INT8",
        "conv (Conv2D): INT8",
        "add (Add): INT8",
        "pool (GlobalAveragePooling2D): INT8",
        "head (Dense): INT8",
    ]
    shown = texts(image)
    assert "Conv2D + ReLU" in shown
    assert "Conv2D + BatchNormalization" in shown
    assert shown.count("W8") == 3
    assert "for ONNX Runtime CPU execution provider; full quantization; 8 layers: 7 in INT8, 1 input" in shown
    assert "8 Q/DQ pairs: 5 on activations, which the graph draws and counts, and 3 on weights" in shown


def test_edges_with_a_pair_are_marked():
    def marks(spec):
        plan = qdq.plan_placement(tiny_model(), "partial", spec, target="tensorrt")
        return len(list(drawn(plan).iter(f"{SVG}circle"))) - 1  # less the legend's

    spec = qdq.QuantizationSpec()
    spec.add("stem")
    assert marks(spec) == 1
    spec.add("add", quantization_index=[1], quantize_weight=False)
    assert marks(spec) == 2
    spec.add("stem", quantize_output=True)
    assert marks(spec) == 3  # the ReLU is a card of its own with a pair in front; the sum keeps its one


def test_a_long_edge_runs_beside_the_cards():
    image = drawn(qdq.plan_placement(tiny_model(), target="onnxruntime"))
    right = max(float(r.get("x")) + float(r.get("width")) for r in image.iter(f"{SVG}rect") if r.get("width") == "168")
    lanes = [path for path in image.iter(f"{SVG}path") if "V" in path.get("d")]
    assert len(lanes) == 1
    assert float(lanes[0].get("d").split("Q")[1].split()[0]) > right
    assert float(image.get("width")) > right


def test_a_large_model_is_a_strip():
    image = keras.Input((4, 4, 2), name="image")
    x = image
    for place in range(70):
        x = layers.Conv2D(2, 1, activation="gelu" if place % 2 else None, name=f"conv{place}")(x)
    picture = drawn(qdq.plan_placement(keras.Model(image, x, name="long"), target="onnxruntime"))
    assert len(titles(picture)) == 71
    cells = [r for r in picture.iter(f"{SVG}rect") if r.get("height") == "20"]
    assert {cell.get("y") for cell in cells} == {"0", "30"}  # one row directly below the other
    assert {cell.get("fill") for cell in cells} == {"#4a6fa5", "#007a5a", "#6b727d"}
    assert "Q/DQ pair" not in texts(picture)
    assert float(picture.get("height")) < 200


def test_names_are_text_whatever_they_hold():
    bad = "<script>alert(1)<script>&'\" \x07"
    image = keras.Input((4, 4, 2), name="image")
    model = keras.Model(image, layers.Conv2D(2, 1, name=bad)(image), name="a<b")
    picture = drawn(qdq.plan_placement(model))
    assert not list(picture.iter(f"{SVG}script"))
    assert "a<b" in texts(picture)
    assert any("<script>" in title and "\ufffd" in title for title in titles(picture))
    assert any("…" in text for text in texts(picture))  # cut, with its beginning and its end


def test_lines_stand_above_the_graph_and_make_room():
    plan = qdq.plan_placement(tiny_model())
    more = drawn(plan, lines=["FP32 99.0", "PTQ 98.8 (-0.2)"])
    assert {"FP32 99.0", "PTQ 98.8 (-0.2)"} <= set(texts(more))
    assert float(more.get("height")) == float(drawn(plan).get("height")) + 34


def test_without_rules_the_plan_is_drawn(monkeypatch):
    def unknown(plan):
        raise qdq.errors.TargetError("no rules")

    plan = qdq.plan_placement(tiny_model())
    monkeypatch.setattr(qdq, "explain", unknown)
    assert "stem (Conv2D): INT8" in titles(drawn(plan))
    assert "relu (ReLU): float" in titles(drawn(plan))


def test_the_file_is_an_svg_or_is_refused(tmp_path):
    plan = qdq.plan_placement(tiny_model())
    path = write_graph_picture(plan, tmp_path / "graph.svg")
    assert ET.parse(path).getroot().tag == f"{SVG}svg"  # noqa: S314 - our own text
    with pytest.raises(BenchError, match=r"ends in \.svg"):
        write_graph_picture(plan, tmp_path / "graph.png")
    with pytest.raises(qdq.errors.OutputPathError, match="existing folder"):
        write_graph_picture(plan, tmp_path / "missing" / "graph.svg")
    with pytest.raises(qdq.SpecError, match="shows a PlacementPlan"):
        write_graph_picture("plan", tmp_path / "other.svg")
    assert [file.name for file in tmp_path.iterdir()] == ["graph.svg"]


class Cell:
    """The outputs of a cell, as a notebook keeps them."""

    def __init__(self):
        self.outputs = []

    def display(self, forms, *, raw, display_id=False):
        assert raw
        self.outputs.append(forms)
        return types.SimpleNamespace(update=self.update) if display_id else None

    def update(self, forms, *, raw):
        assert raw
        self.outputs[-1] = forms

    def said(self):
        return " ".join(texts(ET.fromstring(self.outputs[-1]["image/svg+xml"])))  # noqa: S314 - our own text

    def as_html(self):
        """Return what nbconvert makes of the saved notebook."""
        exporters, notebooks = (pytest.importorskip(name) for name in ("nbconvert.exporters", "nbformat.v4"))
        outputs = [notebooks.new_output("display_data", forms) for forms in self.outputs]
        cell = notebooks.new_code_cell("wb", outputs=outputs)
        return exporters.HTMLExporter().from_notebook_node(notebooks.new_notebook(cells=[cell]))[0]


@pytest.fixture
def cell(monkeypatch):
    found = Cell()
    monkeypatch.setattr("IPython.display.display", found.display)
    monkeypatch.delenv("VSCODE_PID", raising=False)
    return found


def test_a_displayed_bench_leaves_a_picture_with_its_scores_in_the_notebook(cell, tmp_path):
    bench = Workbench(tiny_model(), train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")
    bench._ipython_display_()
    live, picture = cell.outputs
    assert "run this cell" in live["text/plain"]
    assert "image/svg+xml" not in live
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == bench.view.widget.model_id
    first, known, why = picture["text/plain"].splitlines()
    assert (first, known) == (repr(bench), "4 of 4 computing layers quantized, 100.0 % of the work in INT8, planned")
    assert "picture" in why
    assert "Trust Notebook" in why  # all that JupyterLab shows of a notebook that it does not trust
    assert "planned" in cell.said()
    bench._ipython_display_()
    assert len(cell.outputs) == 4
    bench.calibrate()  # scores too
    assert "4 of 4 computing layers quantized, 100.0 % of the work in INT8, calibrated, FP32 " in cell.said()
    assert "PTQ " in cell.said()
    assert len(cell.outputs) == 4
    assert "planned" in picture["text/plain"]  # of the display before
    bench.toggle("head", "weight", on=False)
    bench.save(tmp_path / "bench")
    assert "3 of 4 computing layers quantized" in cell.said()
    assert len(cell.outputs[-1]["image/svg+xml"]) < 20_000


def test_nbconvert_shows_the_picture_of_a_saved_notebook(cell):
    bench = Workbench(tiny_model(), target="onnxruntime")
    bench._ipython_display_()
    page = cell.as_html()
    assert cell.outputs[-1]["image/svg+xml"] in page or "data:image/svg+xml;base64," in page
    assert page.index("run this cell") < page.rindex("svg+xml" if "svg+xml;base64" in page else "<svg")
    assert "VBox(" not in page


def test_a_host_that_would_show_both_gets_one_output(cell, monkeypatch):
    monkeypatch.setenv("VSCODE_PID", "1")
    bench = Workbench(tiny_model(), target="onnxruntime")
    bench._ipython_display_()
    (forms,) = cell.outputs
    assert {"application/vnd.jupyter.widget-view+json", "image/svg+xml", "text/plain"} <= set(forms)


@pytest.mark.slow
def test_the_widgets_of_a_large_network_are_saved_in_less_than_a_megabyte():
    """As JupyterLab saves them: all widgets of the bench, without values that are the defaults."""
    with keras.StatelessScope(initialize_variables=False):  # a plan reads none; they take most of the time
        model = keras.applications.EfficientNetB7(weights=None, input_shape=(64, 64, 3), classes=2)
    bench = Workbench(model, target="onnxruntime")
    state = dependency_state(bench.view.widget, drop_defaults=True)
    graph = state[bench.view.graph.model_id]["state"]
    assert len(json.dumps(state)) < 1_000_000
    assert set(graph) >= {"graph"}
