"""What a type checker says of the notebooks' cells: a name or an argument that is no more is noticed without running them."""

import json
import os
import re
import subprocess
import sys

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from project import ROOT
from test_types import LIBRARIES

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# A reader's cells have no annotations, use one name for several things, and know what is there without asking.
SETTINGS = f"""[mypy]
check_untyped_defs = True
allow_redefinition = True
strict_optional = False
disable_error_code = var-annotated
{LIBRARIES}"""
#: What a shell has without an import.
SHELL = "from IPython import get_ipython\nfrom IPython.display import display\n"
#: What no type says, by the start of a notebook's name and the code of the line: two files and not two plans are
#: compared; the runtimes are keys of a dictionary.
UNTYPED = {
    ("10", 'Item "PlanDiff" of "Comparison | PlanDiff" has no attribute "tensors"'),
    ("10", 'Item "PlanDiff" of "Comparison | PlanDiff" has no attribute "first_divergence"'),
    (
        "06",
        'Argument "runtime" to "profile_onnx" has incompatible type "str"; '
        "expected \"Literal['onnxruntime', 'openvino', 'litert']\"",
    ),
}
#: Mistakes: the start of a notebook's name, what is written there and in its place, and what is said of it.
MISTAKES = {
    "a name at the root": ("02", "qdq.plan_placement(", "qdq.plan_places(", '"plan_places"'),
    "a name of a module": ("09", "qdq.correction.clip_weights(", "qdq.correction.clip(", 'no attribute "clip"'),
    "an argument": ("09", "reference=folded", "teacher=folded", 'keyword argument "teacher" for "learn_rounding"'),
    "an argument inside a function": ("09", "opset=21", "version=21", 'keyword argument "version" for "export_onnx"'),
    "a name of the bench": ("01", "wb.fine_tune(", "wb.train(", '"Workbench" has no attribute "train"'),
    "an argument of the bench": ("01", "train_data=", "samples=", 'keyword argument "samples" for "Workbench"'),
    "a name of what is returned": ("04", ".ranked()", ".ordered()", '"SensitivityReport" has no attribute "ordered"'),
}


def code_of(path):
    """Return the code cells of a notebook as a script; magics and commands of the shell become calls."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return SHELL + "\n\n".join(TransformerManager().transform_cell(source) for source in sources)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What mypy says of all notebooks and of the mistakes, in one run: messages by the names of the scripts."""
    pytest.importorskip("mypy", reason="needs mypy: pip install mypy")
    folder = tmp_path_factory.mktemp("notebooks")
    scripts = {f"notebook_{path.stem[:2]}": code_of(path) for path in NOTEBOOKS}
    for number, (notebook, right, wrong, _) in enumerate(MISTAKES.values()):
        whole = scripts[f"notebook_{notebook}"]
        assert right in whole
        scripts[f"mistake_{number}"] = whole.replace(right, wrong)
    for name, script in scripts.items():
        (folder / f"{name}.py").write_text(script, encoding="utf-8")
    (folder / "settings.ini").write_text(SETTINGS, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "settings.ini", *(f"{name}.py" for name in scripts)]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join([str(ROOT), str(ROOT / "widgets")])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {name: [] for name in scripts}
    for name, message in re.findall(r"^(\w+)\.py:\d+: error: (.*)  \[[\w-]+\]$", done.stdout, re.MULTILINE):
        found[name].append(message)
    assert f"Found {sum(map(len, found.values()))} errors" in done.stdout
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_name_and_argument_in_the_cells_of_a_notebook_is_there(path, said):
    notebook = path.stem[:2]

    assert set(said[f"notebook_{notebook}"]) == {message for name, message in UNTYPED if name == notebook}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_cell_with_what_is_no_more_there_is_noticed(mistake, said):
    *_, expected = MISTAKES[mistake]

    assert any(expected in message for message in said[f"mistake_{list(MISTAKES).index(mistake)}"])
