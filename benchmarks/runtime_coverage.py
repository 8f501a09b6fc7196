"""What each runtime makes of each placement, for well-known networks; writes docs/runtime_coverage.md.

    python benchmarks/runtime_coverage.py

Planning and explaining only: nothing is built, no weight matters.
"""

import pathlib

import keras
from networks import application

import qdq_workbench as qdq

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "runtime_coverage.md"
SIZES = {
    "ResNet50": 224,
    "MobileNetV2": 224,
    "EfficientNetB0": 224,
    "InceptionV3": 299,
    "DenseNet121": 224,
    "ConvNeXtTiny": 224,
}
PLACEMENTS = {"defaults": (), "AutoQDQCase": (qdq.AutoQDQCase(),)}
INTRODUCTION = f"""# Runtimes against placements

What `explain` says of well-known networks (keras.applications of Keras {keras.__version__}, at their usual image
sizes) under the defaults and under `AutoQDQCase()`: the share of multiply-accumulate operations / of layers that run in
INT8. Written by `python benchmarks/runtime_coverage.py`; [the targets](targets.md) says how far each runtime's rules
were checked.

| network | placement | {{targets}} |
|---|---|{{rule}}|
"""


def row(model: keras.Model, name: str, placement: str) -> str:
    """Return one line of the table."""
    cells = []
    for target in qdq.target_names():
        plan = qdq.plan_placement(model, custom_qdq_cases=PLACEMENTS[placement], target=target)
        coverage = qdq.explain(plan, target=target).coverage
        cells.append(f"{100 * coverage['macs']:.0f} % / {100 * coverage['layers']:.0f} %")
    return f"| {name} | {placement} | " + " | ".join(cells) + " |"


def main() -> None:
    """Write the page."""
    targets = qdq.target_names()
    lines = []
    for name, size in SIZES.items():
        model = application(name, size)
        lines += [row(model, name, placement) for placement in PLACEMENTS]
        print(*lines[-len(PLACEMENTS) :], sep="\n", flush=True)
    columns = " | ".join(f"`{target}`" for target in targets)
    head = INTRODUCTION.format(targets=columns, rule="|".join(["---"] * len(targets)))
    PAGE.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
