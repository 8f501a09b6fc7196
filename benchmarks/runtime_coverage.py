"""INT8 coverage of well-known networks per target and placement; writes docs/runtime_coverage.md and a record.

    python benchmarks/runtime_coverage.py

The first table is planning and explaining only. The second counts the integer kernels of files that ONNX Runtime has
optimized: the same networks with an eighth of the channels and arbitrary ranges. The record in
`results/runtime_coverage.md` compares these graphs, node by node, with what `explain` predicts.
"""

import datetime as dt
import pathlib
import sys
import tempfile

import keras
import onnxruntime
from networks import application

import qdq_workbench as qdq

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "runtime_coverage.md"
RECORD = ROOT / "benchmarks" / "results" / "runtime_coverage.md"
SIZES = {
    "ResNet50": 224,
    "MobileNetV2": 224,
    "EfficientNetB0": 224,
    "InceptionV3": 299,
    "DenseNet121": 224,
    "ConvNeXtTiny": 224,
}
PLACEMENTS = {"defaults": (), "AutoQDQCase": (qdq.AutoQDQCase(),)}
SPLIT = "AutoQDQCase, split_activations"
INTRODUCTION = f"""# Runtime coverage

The share of multiply-accumulate operations / of layers that `explain` predicts to run in INT8, for networks of
keras.applications (Keras {keras.__version__}) at their usual image sizes: with the default placement, with
`AutoQDQCase()`, and, for networks with activations inside other layers than the last, with `AutoQDQCase()` after
`split_activations(model)`. With `AutoQDQCase()`, what stays in float is mainly normalizations that cannot be folded
(DenseNet, ConvNeXt) and, except for LiteRT, activations without an integer kernel (SiLU, GELU).
[Targets](targets.md) describes how the rules of each target were checked.

| network | placement | {{targets}} |
|---|---|{{rule}}|
"""
KERNELS = """
## Integer kernels in ONNX Runtime

Integer kernels among all nodes of these operators, in the graphs that ONNX Runtime makes of the files for
`onnxruntime`. The counts include the nodes inside normalizations, GELU and SiLU, which have no integer kernels. The
[record](../benchmarks/results/runtime_coverage.md) compares these graphs, layer by layer, with what `explain` predicts.

| network | placement | Conv | Gemm and MatMul | Add and Mul |
|---|---|---|---|---|
"""
REPRODUCE = """
`python benchmarks/runtime_coverage.py` computes both tables.
"""
COMPARISON = """# Explanations compared with ONNX Runtime

Written by `python benchmarks/runtime_coverage.py` on {date}, ONNX Runtime {onnxruntime}.

The networks and placements of [runtime coverage](../../docs/runtime_coverage.md) for `onnxruntime`: ONNX Runtime
optimizes a file of every plan, and the nodes of every layer are looked up in its graph. The networks have an eighth of
their channels, small images and arbitrary ranges, which does not change which kernels are formed. "Predicted" and
"executed" count layers in INT8 among those that have a node of their own in the file; the others are folded, move
values, or vanish.

| network | placement | layers compared | predicted INT8 | executed INT8 | disagreements |
|---|---|---|---|---|---|
"""


def variants(model: keras.Model) -> dict[str, tuple[keras.Model, tuple]]:
    """Return the placements, each with the model that is planned and the cases."""
    found = {placement: (model, cases) for placement, cases in PLACEMENTS.items()}
    split = qdq.split_activations(model)
    if len(split.layers) > len(model.layers) + 1:
        found[SPLIT] = (split, PLACEMENTS["AutoQDQCase"])
    return found


def row(model: keras.Model, cases: tuple, name: str, placement: str) -> str:
    """Return one line of the first table."""
    cells = []
    for target in qdq.target_names():
        plan = qdq.plan_placement(model, custom_qdq_cases=cases, target=target)
        coverage = qdq.explain(plan, target=target).coverage
        cells.append(f"{100 * coverage['macs']:.0f} % / {100 * coverage['layers']:.0f} %")
    return line(name, placement, *cells)


def executed(name: str) -> list[tuple[str, str]]:
    """Return the lines of one network for the table of kernels and for the record, a pair for each placement."""
    sys.path.insert(0, str(ROOT / "tests"))
    from agreement.fast_export import FastExport
    from agreement.networks import build
    from agreement.statuses import compared_layers

    from qdq_workbench.verification import count_integer_kernels

    lines = []
    exports: dict[int, FastExport] = {}
    for placement, (model, cases) in variants(build(name)).items():
        if id(model) not in exports:
            exports[id(model)] = FastExport(model)
        export = exports[id(model)]
        plan = qdq.plan_placement(export.graph, custom_qdq_cases=cases, target="onnxruntime")
        file = export.build(plan)
        with tempfile.TemporaryDirectory() as folder:
            layers = list(compared_layers(qdq.explain(plan), file, pathlib.Path(folder)))
        said = sum(entry.status == "int8" for entry, _ in layers)
        ran = sum(runs == {"int8"} for _, runs in layers)
        wrong = sum(
            runs != ({"int8", "float"} if entry.status == "partial" else {entry.status}) for entry, runs in layers
        )
        counts = count_integer_kernels(file).counts
        kernels = [_kernels(counts, *group) for group in (("Conv",), ("Gemm", "MatMul"), ("Add", "Mul"))]
        lines.append((line(name, placement, *kernels), line(name, placement, len(layers), said, ran, wrong)))
    return lines


def line(*cells: object) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _kernels(counts: dict[str, tuple[int, int]], *operators: str) -> str:
    found = [counts.get(operator, (0, 0)) for operator in operators]
    return f"{sum(good for good, _ in found)} of {sum(total for _, total in found)}"


def main() -> None:
    """Write the page and the record."""
    targets = qdq.target_names()
    lines = []
    for name, size in SIZES.items():
        model = application(name, size)
        rows = [row(either, cases, name, key) for key, (either, cases) in variants(model).items()]
        print(*rows, sep="\n", flush=True)
        lines += rows
    found = []
    for name in SIZES:
        pairs = executed(name)
        print(*(compared for _, compared in pairs), sep="\n", flush=True)
        found += pairs
    columns = " | ".join(f"`{target}`" for target in targets)
    head = INTRODUCTION.format(targets=columns, rule="|".join(["---"] * len(targets)))
    kernels = KERNELS + "\n".join(kernels for kernels, _ in found) + "\n"
    PAGE.write_text(head + "\n".join(lines) + "\n" + kernels + REPRODUCE, encoding="utf-8")
    head = COMPARISON.format(date=dt.datetime.now(tz=dt.timezone.utc).date(), onnxruntime=onnxruntime.__version__)
    RECORD.write_text(head + "\n".join(compared for _, compared in found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
