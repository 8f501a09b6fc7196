"""Every Python block of README.md and docs/ runs, block after block, on a tiny model; the commands exist.

Blocks fenced as `py` need what a test has not (several machines, another package, the reader's own network); those of
`OPTIONAL` run where their package is installed.
"""

import importlib
import json
import re
import shlex
import shutil
import zipfile

import keras
import numpy as np
import pytest
from named_modules import MODULES
from project import ROOT
from small_models import residual_net

import qdq_workbench as qdq
from qdq_workbench.cli.main import COMMANDS, build_parser

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
#: Pages with `py` blocks that import a package which this one does not require.
OPTIONAL = [("docs/howto/ship.md", "openvino"), ("docs/howto/ship.md", "ai_edge_litert")]
WITH_BLOCKS = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write the files that the pages speak of: resnet.keras, images.npy, labels.npy, trained.h5."""
    folder = tmp_path_factory.mktemp("files")
    with zipfile.ZipFile(ROOT / "tests" / "tfmot" / "trained.zip") as archive:
        (folder / "trained.h5").write_bytes(archive.read("residual.h5"))
    net = residual_net()
    keras.Model(net.inputs, keras.layers.Softmax()(net.output)).save(folder / "resnet.keras")
    images = np.random.default_rng(0).standard_normal((32, 8, 8, 2)).astype(np.float32)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", np.argmax(net(images), axis=-1))  # the model is right, as a trained one mostly is
    return folder


@pytest.fixture
def workplace(files, tmp_path, monkeypatch):
    """Work in a folder with copies of the files."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_blocks_run(page, workplace, own_registry):
    names = {}

    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)


def blocks_with(package, text):
    """Return the `python` blocks of a page, with those of `py` that import a package, in order."""
    blocks = re.findall(r"^```(python|py)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [block for kind, block in blocks if kind == "python" or re.search(rf"\b(import|from) {package}\b", block)]


@pytest.mark.parametrize(("page", "package"), OPTIONAL)
def test_blocks_with_optional_packages_run(page, package, workplace, own_registry):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert len(blocks_with(package, text)) == len(BLOCK.findall(text)) + 1
    pytest.importorskip(package, reason=f"needs the optional package {package}")
    names = {}

    for block in blocks_with(package, text):
        exec(compile(block, f"{page} with {package}", "exec"), names)


def test_readme_opens_with_the_whole_path_in_under_15_lines():
    first = BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8")).group(1)

    assert len(first.strip().splitlines()) < 15
    for call in ("quantize_model", "calibrate", "fit", "export_onnx", "verify_onnx"):
        assert f"{call}(" in first


def test_readme_shows_commands_that_exist():
    lines = re.findall(r"^qdq-workbench (.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)

    commands = {build_parser().parse_args(line.split()).command.name for line in lines}
    assert commands == {command.name for command in COMMANDS}


def parses(line):
    try:
        build_parser().parse_args(shlex.split(line, comments=True))
    except SystemExit:
        return False
    return True


def wrong_commands(text):
    """Return the lines of a page's blocks that the parser refuses, and sentences with options that do not exist."""
    blocks = re.findall(r"^```\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in re.findall(r"^qdq-workbench (.*)$", block, flags=re.MULTILINE)]
    wrong = [line for line in lines if not parses(line)]
    known = {name: set(parser._option_string_actions) for name, parser in build_parser()._actions[-1].choices.items()}
    for span in re.findall(r"`qdq-workbench ([^`]*)`", text):
        name, *rest = span.split()
        options = {word for word in rest if word.startswith("-")}
        if name in known and not options <= known[name]:
            wrong.append(span)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_a_page_exist_with_their_options(page):
    assert wrong_commands(page.read_text(encoding="utf-8")) == []


def test_wrong_commands_are_found(capsys):
    block = "```\nqdq-workbench plan model.keras\nqdq-workbench plan m.keras --mask x\n```\n"

    assert wrong_commands(f"{block}`qdq-workbench lint\n--dark`\n") == ["plan m.keras --mask x", "lint\n--dark"]


def test_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "make demo" in text
    assert "make test" in text


def written_names(text):
    """Return the names of the package that a text calls, `qdq.name` and `qdq.module.name`, as parts."""
    return {tuple(filter(None, found)) for found in re.findall(r"(?<![\w/.-])qdq\.(\w+)(?:\.(\w+))?", text)}


def documented(parts):
    """Return whether a name is written as docs/names.md has it."""
    first, *rest = parts
    if first not in MODULES:
        return first in qdq.__all__
    module = importlib.import_module(f"qdq_workbench.{first}")
    named = MODULES[first] or dir(module)
    return not rest or rest[0] in named or (first == "errors" and hasattr(module, rest[0]))


def cell_texts(path):
    return "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])


@pytest.mark.parametrize(
    "path", [*PAGES, *sorted((ROOT / "notebooks").glob("*.ipynb"))], ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_names_are_written_as_the_page_of_names_has_them(path):
    text = cell_texts(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    shown = written_names(text) - (
        {("load_model",)} if path.name == "names.md" else set()
    )  # it says that this works too

    assert sorted(".".join(parts) for parts in shown if not documented(parts)) == []


def test_a_name_at_another_place_than_the_documented_one_is_found():
    assert written_names("qdq.get_target() and qdq.spec.LayerConfig") == {("get_target",), ("spec", "LayerConfig")}
    assert not documented(("get_target",))
    assert not documented(("targets", "explain"))
    assert documented(("targets", "get_target"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []
