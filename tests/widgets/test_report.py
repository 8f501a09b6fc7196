"""The report: what a reader decides by comes first, long tables are folded."""

import html.parser

import pytest
from small_benches import tiny_data

from qdq_widgets import Workbench
from qdq_widgets.report import report_html


class Outline(html.parser.HTMLParser):
    """Collects headings in order, and the text of every fold."""

    def __init__(self, page):
        super().__init__()
        self.titles, self.folds, self.open, self._tag, self._inside = [], {}, [], "", ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "details":
            self.open.append("open" in dict(attributes))
        self._tag = tag
        if tag in ("h2", "summary"):
            self.titles.append("")

    def handle_data(self, data):
        if self._tag in ("h2", "summary"):
            self.titles[-1] += data
        elif self._inside:
            self.folds[self._inside] = self.folds.get(self._inside, "") + data

    def handle_endtag(self, tag):
        self._tag = ""
        if tag == "summary":
            self._inside = self.titles[-1]
        elif tag == "details":
            self._inside = ""


@pytest.fixture
def bench(model):
    return Workbench(model, train_data=tiny_data(), validation_data=tiny_data(32), target="onnxruntime")


def test_what_matters_comes_first_and_long_tables_are_folded(bench, tmp_path):
    bench.leave_in_float(["conv"])
    bench.calibrate()
    bench.keep_variant("first")
    bench.sensitivity()
    bench.export(tmp_path / "net.onnx")
    page = report_html(bench)
    found = Outline(page)
    sensitivity, pairs = bench.metrics["sensitivity"].values, bench.plan.placements
    steps, code = bench.history.steps, bench.to_code()
    assert found.titles == [
        "Accuracy and loss",
        "Variants",
        "Layers that matter",
        "Exported files",
        "Graph",
        "Activation ranges",
        f"sensitivity ({len(sensitivity)})",
        f"Q/DQ pairs by layer ({len(pairs)})",
        f"What stays in float, and why ({len(bench.plan.unquantized)})",
        f"History ({len(steps)})",
        f"As Python, in lines ({len(code.splitlines())})",
    ]
    assert list(found.folds) == found.titles[6:]
    assert found.open == [False] * 5
    assert code in found.folds[found.titles[-1]]
    assert all(step.label in found.folds[found.titles[-2]] for step in steps)
    assert page.index("computing layers quantized") < page.index("Accuracy and loss")
    assert "in float: " in page[page.index("Layers that matter") : page.index("Exported files")]
    assert page.count('"showSendToCloud": false') == page.count("Plotly.newPlot(  ") == 2


def test_a_printer_gets_every_fold_open(bench):
    page = report_html(bench)
    assert page.index("</details>") < page.index('addEventListener("beforeprint"')
