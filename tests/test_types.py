"""What mypy, pyright and editors know of the public names: their real types, and that others do not exist."""

import ast
import itertools
import json
import os
import shutil
import subprocess
import sys

import pytest
from named_modules import MODULES
from project import ROOT

import qdq_widgets
import qdq_workbench as qdq

# Silent about libraries that carry no types, as mypy's documentation advises.
LIBRARIES = """[mypy-keras.*,tensorflow.*,onnx.*,onnxruntime.*,tf2onnx.*,sklearn.*,plotly.*,matplotlib.*,joblib.*]
ignore_missing_imports = True
follow_imports = skip
[mypy-anywidget.*,ipywidgets.*,netron.*,h5py.*,openvino.*]
ignore_missing_imports = True
follow_imports = skip
[mypy-qdq_workbench.*,qdq_widgets.*]
ignore_errors = True
"""
# No assertion is about the types of other libraries, whose stubs take mypy twice as long as all of this project.
LIBRARIES += """[mypy-numpy.*,IPython.*,rich.*,PIL.*,traitlets.*,jinja2.*]
ignore_missing_imports = True
follow_imports = skip
follow_imports_for_stubs = True
"""
# A user's project.
SETTINGS = f"[mypy]\nstrict = True\n{LIBRARIES}"
BENCH = {
    "wb": "Workbench",
    "wb.plan": "PlacementPlan",
    "wb.spec": "QuantizationSpec",
    "wb.explanation": "Explanation",
    "wb.q_model": "QuantizedModel",
    "wb.calibration": "CalibrationResult | None",
    "wb.toggle('conv', 'input')": "Step",
    "wb.sensitivity()": "SensitivityReport",
    "wb.search(0.9)": "SearchResult",
}
#: Mistakes of a user, and what each checker says of them.
MISTAKES = {
    "qdq.calibrate(5, banana=3)": {"mypy": 'incompatible type "int"', "pyright": 'missing for parameter "data"'},
    "qdq.no_such_thing": {
        "mypy": 'no attribute "no_such_thing"',
        "pyright": '"no_such_thing" is not a known attribute',
    },
    "qdq.quantize_model(keras.Model(), spec=None)": {
        "mypy": 'Unexpected keyword argument "spec"',
        "pyright": 'No parameter named "spec"',
    },
    "wb.togle('conv', 'input')": {
        "mypy": 'has no attribute "togle"',
        "pyright": 'Cannot access attribute "togle" for class "Workbench"',
    },
    "wb.plan.for_layer(3)": {"mypy": 'incompatible type "int"', "pyright": 'cannot be assigned to parameter "name"'},
}


def names_of(module):
    return [name for name in module.__all__ if not name.startswith("__")]


def spelled_at_the_root(module):
    """The names that are told elsewhere, and the modules that tell them: both work at the root."""
    return [*itertools.chain(*MODULES.values()), *MODULES] if module is qdq else []


QDQ_NAMES = sorted({*names_of(qdq), *spelled_at_the_root(qdq)})
QDQ_NAMES += [f"{module}.{name}" for module, names in MODULES.items() for name in names]


LINES = ["import keras", "import qdq_workbench as qdq", "import qdq_widgets", "wb = qdq_widgets.Workbench(None)"]
LINES += [f"reveal_type(qdq.{name})" for name in QDQ_NAMES]
LINES += [f"reveal_type(qdq_widgets.{name})" for name in names_of(qdq_widgets)]
LINES += [f"reveal_type({expression})" for expression in BENCH]
LINES += MISTAKES


def by_mypy(folder):
    """Yield the number of a line of the script, from 1, and what mypy says of it."""
    pytest.importorskip("mypy", reason="needs mypy: pip install mypy")
    (folder / "settings.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--config-file", "settings.ini", "script.py"]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    for text in finished.stdout.splitlines():
        assert text.startswith(("script.py:", "Found ")), finished.stdout + finished.stderr
        if text.startswith("script.py:"):
            yield int(text.split(":")[1]), text.split(":", 2)[2].strip()


def by_pyright(folder):
    """Yield the number of a line of the script, from 1, and what pyright, which runs in Node, says of it."""
    pytest.importorskip("pyright", reason="needs pyright: pip install pyright")
    if shutil.which("node") is None:
        pytest.skip("needs Node, which pyright would download")
    settings = {"extraPaths": [str(ROOT), str(ROOT / "widgets")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "script.py"]
    # Newer versions are neither asked for nor downloaded: the package has its own copy.
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    environment.pop("PYRIGHT_PYTHON_FORCE_VERSION", None)
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert finished.stdout.startswith("{"), finished.stdout + finished.stderr
    for found in json.loads(finished.stdout)["generalDiagnostics"]:
        yield found["range"]["start"]["line"] + 1, found["message"]


CHECKERS = {"mypy": by_mypy, "pyright": by_pyright}


@pytest.fixture(scope="module", params=CHECKERS)
def checker(request):
    return request.param


@pytest.fixture(scope="module")
def answers(checker, tmp_path_factory):
    """What a checker says of each line of a user's script."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "script.py").write_text("\n".join(LINES))
    said = {line: [] for line in LINES}
    for number, text in CHECKERS[checker](folder):
        said[LINES[number - 1]].append(text)
    return said


def revealed(answers, expression):
    (note,) = answers[f"reveal_type({expression})"]
    return note.partition(' is "')[2].rstrip('"')


@pytest.mark.parametrize("name", [f"qdq.{n}" for n in QDQ_NAMES] + [f"qdq_widgets.{n}" for n in names_of(qdq_widgets)])
def test_a_type_checker_knows_the_type_of_every_public_name(answers, name):
    found = revealed(answers, name)
    assert found not in {"", "Any"}
    assert "Unknown" not in found


@pytest.mark.parametrize(("expression", "expected"), BENCH.items())
def test_a_type_checker_knows_what_the_bench_returns(answers, expression, expected):
    assert revealed(answers, expression).endswith(expected)


@pytest.mark.parametrize("line", MISTAKES)
def test_a_type_checker_finds_mistakes_in_calls(answers, checker, line):
    assert any(MISTAKES[line][checker] in said for said in answers[line]), answers[line]


def test_a_type_checker_finds_no_other_mistakes(answers):
    assert {line: said for line, said in answers.items() if said and not line.startswith("reveal_type(")}.keys() == {
        *MISTAKES
    }


@pytest.mark.parametrize("module", [qdq, qdq_widgets])
def test_the_stub_names_what_the_package_has(module):
    path = ROOT / ("widgets" if module is qdq_widgets else "") / module.__name__ / "__init__.pyi"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]
    (listed,) = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assert sorted(listed) == sorted(module.__all__)
    assert sorted(imported) == sorted({*names_of(module), *spelled_at_the_root(module)})
