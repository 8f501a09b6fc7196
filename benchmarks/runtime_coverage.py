"""What each runtime makes of each placement, for well-known networks; writes docs/runtime_coverage.md.

    python benchmarks/runtime_coverage.py

The first table is planning and explaining only. The second sets explain's word beside what ONNX Runtime runs: files of
the same networks, thin ones with made-up ranges, are optimized by the runtime and looked at node by node.
"""

import pathlib
import sys
import tempfile

import keras
from networks import application

import qdq_workbench as qdq

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "runtime_coverage.md"
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
INTRODUCTION = f"""# Runtimes against placements

What `explain` says of well-known networks (keras.applications of Keras {keras.__version__}, at their usual image
sizes) under the defaults, under `AutoQDQCase()`, and, where activations stand inside more layers than the last one,
under the case behind `split_activations(model)`: the share of multiply-accumulate operations / of layers that run in
INT8.
Written by `python benchmarks/runtime_coverage.py`; [the targets](targets.md) says how far each runtime's rules
were checked.

| network | placement | {{targets}} |
|---|---|{{rule}}|
"""
EXECUTED = """
## Beside what ONNX Runtime runs

The same networks and placements for `onnxruntime`, executed: a file of every plan is optimized by ONNX Runtime, and the
nodes of every layer are looked up in its graph. The networks have an eighth of their channels, small images and made-up
ranges, which does not change which kernels are formed. "Said" and "ran" count layers in INT8 among those that leave a
node of their own in the file; the rest is folded, moves values, or vanishes. The last columns count integer kernels
among all nodes of these operators, also those inside normalizations, GELU and SiLU, which have no integer kernels.

| network | placement | layers compared | said INT8 | ran INT8 | disagreements | Conv | Gemm and MatMul | Add and Mul |
|---|---|---|---|---|---|---|---|---|
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
    return f"| {name} | {placement} | " + " | ".join(cells) + " |"


def executed(name: str) -> list[str]:
    """Return the lines of the second table for one network."""
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
        cells = [name, placement, len(layers), said, ran, wrong, *kernels]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def _kernels(counts: dict[str, tuple[int, int]], *operators: str) -> str:
    found = [counts.get(operator, (0, 0)) for operator in operators]
    return f"{sum(good for good, _ in found)} of {sum(total for _, total in found)}"


def main() -> None:
    """Write the page."""
    targets = qdq.target_names()
    lines = []
    for name, size in SIZES.items():
        model = application(name, size)
        rows = [row(either, cases, name, key) for key, (either, cases) in variants(model).items()]
        print(*rows, sep="\n", flush=True)
        lines += rows
    found = []
    for name in SIZES:
        rows = executed(name)
        print(*rows, sep="\n", flush=True)
        found += rows
    columns = " | ".join(f"`{target}`" for target in targets)
    head = INTRODUCTION.format(targets=columns, rule="|".join(["---"] * len(targets)))
    PAGE.write_text(head + "\n".join(lines) + "\n" + EXECUTED + "\n".join(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
