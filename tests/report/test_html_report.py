import dataclasses
import html.parser

import pytest

from qdq_workbench.errors import OutputPathError
from qdq_workbench.graph.model_graph import ModelGraph, Node, Tensor
from qdq_workbench.placement.plan import Placement, PlacementPlan, Unquantized
from qdq_workbench.report import (
    Check,
    Curve,
    Figure,
    FileResult,
    RunReport,
    installed_versions,
    render_html_report,
    write_html_report,
)
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

HOSTILE = "<script>alert('x')</script>"
ACTIVATION = QuantizerSpec(signed=False, symmetric=False)
WEIGHT = QuantizerSpec(narrow_range=True, axis=-1)


def make_plan(layer="conv"):
    nodes = (
        Node("image", "image", "InputLayer", outputs=("image",)),
        Node(layer, layer, "Conv2D", inputs=("image",), outputs=(layer,)),
        Node("skip", "skip", "Conv2D", inputs=("image",), outputs=("skip",)),
    )
    tensors = {node.name: Tensor(node.name, (None, 8, 8, 3), "float32", node.name) for node in nodes}
    graph = ModelGraph("net", nodes, tensors, inputs=("image",), outputs=(layer,))
    return PlacementPlan(
        graph=graph,
        mode="full",
        target="onnxruntime",
        placements=(
            Placement("input", layer, layer, "image", ACTIVATION, "Conv2D by default", "default", input_index=0),
            Placement("input", "skip", "skip", "image", ACTIVATION, "named in the spec", "spec[0]", input_index=0),
            Placement(
                "weight", layer, layer, f"{layer}/kernel", WEIGHT, "Conv2D by default", "default", weight="kernel"
            ),
        ),
        unquantized=(Unquantized("add", "input 1", layer, "the convolution's branch of a residual connection"),),
    )


def make_run(**changes):
    run = RunReport(
        title="net on images",
        verdict="VERDICT good: FP32 98.6 %",
        passed=True,
        plan=make_plan(),
        figures=[Figure("FP32", "98.6 %", "on 100 test images")],
        checks=[Check("files verified", True, "2 of 2")],
        curves=[Curve("QAT", (0, 1), (0.9, 0.95))],
        ranges={"image": (-0.5, 6.0)},
        files=[FileResult("tensorrt", "net.onnx", "export text", "verification text", True)],
        versions={"keras": "3.0"},
    )
    return dataclasses.replace(run, **changes)


class Cells(html.parser.HTMLParser):
    """The text of every table, row by row."""

    def __init__(self, page):
        super().__init__()
        self.rows, self._in_cell = [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        self._in_cell = self._in_cell or tag in {"td", "th"}
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag not in {"td", "th"}

    def handle_data(self, data):
        if self._in_cell:
            self.rows[-1][-1] += data.strip()

    def row(self, first):
        (found,) = [row for row in self.rows if row[0] == first]
        return found


def test_every_quantized_tensor_has_a_row_with_grid_range_readers_author_and_reason():
    cells = Cells(render_html_report(make_run(curves=())))

    assert cells.row("image") == [
        "image",
        "activation",
        "uint8 asymmetric, per tensor",
        "-0.5 … 6",
        "conv (input 0)skip (input 0)",
        "default, spec[0]",
        "Conv2D by defaultnamed in the spec",
    ]
    assert cells.row("conv/kernel")[2] == "int8 symmetric, narrow, per channel (axis -1)"


def test_a_row_names_the_group_whose_scale_a_tensor_shares_and_the_site_of_every_pair():
    plan = make_plan()
    behind = Placement("output", "skip", "skip", "skip", ACTIVATION, "its readers", "default", scale_group="image")
    cells = Cells(
        render_html_report(make_run(curves=(), plan=dataclasses.replace(plan, placements=(*plan.placements, behind))))
    )

    assert cells.row("skipshares the scale of image")[4] == "skip (output)"
    assert cells.row("conv/kernel")[4] == "conv (kernel)"
    assert cells.row("image")[4] == "conv (input 0)skip (input 0)"


def test_every_value_left_in_float_has_a_row_with_its_reason():
    cells = Cells(render_html_report(make_run(curves=())))

    assert cells.row("add") == ["add", "input 1", "conv", "the convolution's branch of a residual connection"]


def test_verdict_figures_files_and_versions_are_on_the_page():
    page = render_html_report(make_run(curves=()))

    for text in ("VERDICT good: FP32 98.6 %", "on 100 test images", "export text", "verification text", "keras 3.0"):
        assert text in page
    assert 'class="verdict good"' in page
    assert 'class="verdict bad"' in render_html_report(make_run(curves=(), passed=False))


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": make_plan(layer=HOSTILE)},
        {"title": HOSTILE},
        {"verdict": HOSTILE},
        {"curves": [Curve(HOSTILE, (0,), (0.5,))]},
        {"files": [FileResult(HOSTILE, HOSTILE, HOSTILE, HOSTILE, False)]},
        {"checks": [Check(HOSTILE, False, HOSTILE)]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_untrusted_names_never_become_markup(changes):
    page = render_html_report(make_run(**{"curves": (), **changes}))

    assert HOSTILE not in page
    assert "alert(" in page  # it is shown, escaped


def test_page_fetches_nothing():
    page = render_html_report(make_run())

    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert "<script src=" not in page
    assert "<link" not in page.split("<script", maxsplit=1)[0]
    assert '"showSendToCloud": false' in page  # plotly's own default offers to upload the chart


def test_write_puts_the_page_into_a_file(tmp_path):
    path = write_html_report(make_run(), tmp_path / "report.html")

    assert "Accuracy while fine-tuning" in path.read_text(encoding="utf-8")


def test_write_to_a_missing_folder_is_a_named_error(tmp_path):
    with pytest.raises(OutputPathError):
        write_html_report(make_run(curves=()), tmp_path / "missing" / "report.html")


def test_versions_name_what_made_the_file():
    versions = installed_versions()

    assert {"keras", "onnx", "onnxruntime", "numpy"} <= set(versions)
    assert all(versions.values())
