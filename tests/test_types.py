"""What a user's type checker and editor know of the public names: their real types, and that others do not exist."""

import ast
import itertools
import subprocess
import sys

import pytest
from named_modules import MODULES
from project import ROOT

import qdq_widgets
import qdq_workbench as qdq

# A user's project: strict, and silent about libraries that carry no types, as mypy's documentation advises.
SETTINGS = """[mypy]
strict = True
[mypy-keras.*,tensorflow.*,onnx.*,onnxruntime.*,tf2onnx.*,sklearn.*,plotly.*,matplotlib.*,joblib.*,h5py.*]
ignore_missing_imports = True
follow_imports = skip
[mypy-anywidget.*,ipywidgets.*,netron.*]
ignore_missing_imports = True
follow_imports = skip
[mypy-qdq_workbench.*,qdq_widgets.*]
ignore_errors = True
"""
# No assertion is about the types of other libraries, whose stubs take mypy twice as long as all of this project.
SETTINGS += """[mypy-numpy.*,IPython.*,rich.*,PIL.*,traitlets.*,jinja2.*]
ignore_missing_imports = True
follow_imports = skip
follow_imports_for_stubs = True
"""
BENCH = {
    "wb": "qdq_widgets.workbench.Workbench",
    "wb.plan": "PlacementPlan",
    "wb.spec": "QuantizationSpec",
    "wb.explanation": "Explanation",
    "wb.q_model": "QuantizedModel",
    "wb.calibration": "CalibrationResult | None",
    "wb.toggle('conv', 'input')": "Step",
    "wb.sensitivity()": "SensitivityReport",
    "wb.search(0.9)": "SearchResult",
}
MISTAKES = [
    ("qdq.calibrate(5, banana=3)", 'incompatible type "int"'),
    ("qdq.no_such_thing", 'no attribute "no_such_thing"'),
    ("qdq.quantize_model(keras.Model(), spec=None)", 'Unexpected keyword argument "spec"'),
    ("wb.togle('conv', 'input')", 'has no attribute "togle"'),
    ("wb.plan.for_layer(3)", 'incompatible type "int"'),
]


def names_of(module):
    return [name for name in module.__all__ if not name.startswith("__")]


def spelled_at_the_root(module):
    """The names that are told elsewhere, and the modules that tell them: both work at the root."""
    return [*itertools.chain(*MODULES.values()), *MODULES] if module is qdq else []


QDQ_NAMES = sorted({*names_of(qdq), *spelled_at_the_root(qdq)})
QDQ_NAMES += [f"{module}.{name}" for module, names in MODULES.items() for name in names]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What mypy says of each line of a user's script."""
    pytest.importorskip("mypy", reason="needs mypy: pip install mypy")
    folder = tmp_path_factory.mktemp("user")
    lines = ["import keras", "import qdq_workbench as qdq", "import qdq_widgets", "wb = qdq_widgets.Workbench(None)"]
    lines += [f"reveal_type(qdq.{name})" for name in QDQ_NAMES]
    lines += [f"reveal_type(qdq_widgets.{name})" for name in names_of(qdq_widgets)]
    lines += [f"reveal_type({expression})" for expression in BENCH]
    lines += [mistake for mistake, _ in MISTAKES]
    (folder / "script.py").write_text("\n".join(lines))
    (folder / "settings.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--config-file", "settings.ini", "script.py"]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = {line: [] for line in lines}
    for text in finished.stdout.splitlines():
        if text.startswith("script.py:"):
            said[lines[int(text.split(":")[1]) - 1]].append(text.split(":", 2)[2].strip())
    assert any(said.values()), finished.stdout + finished.stderr
    return said


def revealed(answers, expression):
    (note,) = answers[f"reveal_type({expression})"]
    return note.partition('Revealed type is "')[2].rstrip('"')


@pytest.mark.parametrize("name", [f"qdq.{n}" for n in QDQ_NAMES] + [f"qdq_widgets.{n}" for n in names_of(qdq_widgets)])
def test_a_type_checker_knows_the_type_of_every_public_name(answers, name):
    assert revealed(answers, name) not in {"", "Any"}


@pytest.mark.parametrize(("expression", "expected"), BENCH.items())
def test_a_type_checker_knows_what_the_bench_returns(answers, expression, expected):
    assert revealed(answers, expression).endswith(expected)


@pytest.mark.parametrize(("line", "expected"), MISTAKES)
def test_a_type_checker_finds_mistakes_in_calls(answers, line, expected):
    assert any(expected in said for said in answers[line]), answers[line]


@pytest.mark.parametrize("module", [qdq, qdq_widgets])
def test_the_stub_names_what_the_package_has(module):
    path = ROOT / ("widgets" if module is qdq_widgets else "") / module.__name__ / "__init__.pyi"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]
    (listed,) = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assert sorted(listed) == sorted(module.__all__)
    assert sorted(imported) == sorted({*names_of(module), *spelled_at_the_root(module)})
