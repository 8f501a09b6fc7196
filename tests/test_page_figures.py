"""Figures that pages repeat by hand: those of the benchmarks' results, and of each other."""

import json
import re

from project import ROOT

DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"


def table_of(page, first):
    """Return the cells of the table of a page whose first heading cell is `first`, by the first cell of each row."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(first)} \|.*?\n\n", text, flags=re.MULTILINE | re.DOTALL)[0]
    rows = [[cell.strip() for cell in row[1:-1].split("|")] for row in found.strip().splitlines()]
    return {cells[0]: cells[1:] for cells in rows if cells[0] != "---"}


def test_costs_per_layer_are_those_of_the_benchmark():
    seconds = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))["layers"]
    table = table_of("performance.md", "layers")
    counts = [count.replace(",", "") for count in table.pop("layers")]

    assert counts == list(seconds["planning"])
    assert {name.strip("`").split("`")[0].split(",")[0]: cells for name, cells in table.items()} == {
        step: [microseconds(found[count], int(count)) if count in found else "-" for count in counts]
        for step, found in seconds.items()
    }


def microseconds(seconds, layers):
    """Return the cost of a layer as the table has it, with three digits."""
    return f"{float(f'{1e6 * seconds / layers:.3g}'):,.0f}"


def test_files_of_searches_are_those_of_the_benchmark():
    networks = json.loads((RESULTS / "search.json").read_text(encoding="utf-8"))
    table = table_of("post_training.md", "file")
    names = {"plain quantization": "plain quantization", "`AutoQDQCase`": "AutoQDQCase", "search": "search"}
    names |= {"FP32; again": "FP32 again", "ONNX Runtime's `quantize_static`": "quantize_static"}

    assert list(networks) == ["resnet8_cifar_jpeg", "mobilenet_v2", "mobilenet_v3"]
    assert table == {"file": table["file"]} | {
        name: [cell for found in networks.values() for cell in of_file(found["rows"], key)]
        for name, key in names.items()
    }


def of_file(rows, name):
    """Return accuracy, time and size of a file as the table has them."""
    found = rows[name]
    size = found["bytes"] / rows["FP32"]["bytes"]
    return [f"{100 * found['accuracy']:.2f} %", f"{found['ratio']:.3f}", f"{size:.3f}"]


def test_speeds_and_sizes_of_files_are_those_of_the_page_of_performance():
    table = table_of("performance.md", "What")
    rows = ["speed of the INT8 file / FP32, batch 1, one and two threads: ResNet-8"]
    rows += ["the same, MobileNetV2 224x224", "the same, ResNet50 224x224"]
    first, second, third = (f"{float(table[row][1].split(',')[0]):.1f}" for row in rows)
    sizes = table["size of the INT8 file / FP32: ResNet-8, MobileNetV2, ResNet50"][1].split(";")[0].split(", ")
    small, smaller, smallest = (f"{100 * float(size):.0f} %" for size in sizes)

    for path in (ROOT / "README.md", DOCS / "concepts" / "qdq_pairs.md"):
        assert f"{first}, {second} and {third} times as fast" in one_line(path)
    assert f"at {small}, {smaller} and {smallest} of the size" in one_line(ROOT / "README.md")
    assert f"the file of ResNet-8 has {small} of the float size, that of ResNet50 {smallest}" in one_line(
        DOCS / "faq.md"
    )


def one_line(path):
    return " ".join(path.read_text(encoding="utf-8").split())


def test_what_predict_costs_is_one_figure():
    row = table_of("performance.md", "What")["`predict` / float `predict`: ResNet-8, 256 images"]
    found = re.match(r"[\d.]+ to [\d.]+", row[1])[0]

    assert f"`predict` of ResNet-8 takes {found} times the processor time" in one_line(DOCS / "faq.md")
