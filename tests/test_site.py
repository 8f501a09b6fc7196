"""The documentation site: every public name on one page, pages made from the code up to date, no page forgotten."""

import ast
import collections
import importlib
import importlib.util
import inspect
import json
import re

import pytest
import yaml
from named_modules import MODULES
from project import ROOT

import qdq_widgets
import qdq_workbench as qdq
from qdq_workbench._pages import TITLES

DOCS = ROOT / "docs"
#: Modules whose names are all on the pages, those included that the root and the other modules do not tell.
WHOLE_MODULES = ("numerics", "tfmot", "mct", "errors")


def load(name):
    """Import a script of docs/site."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public_objects():
    """Return every public object by the name that it is told by; one object has one name."""
    named = {name: getattr(qdq, name) for name in qdq.__all__}
    for module, names in MODULES.items():
        named.update(
            {f"{module}.{name}": getattr(importlib.import_module(f"qdq_workbench.{module}"), name) for name in names}
        )
    for module in WHOLE_MODULES:
        home = importlib.import_module(f"qdq_workbench.{module}")
        told = getattr(home, "__all__", None) or [
            name for name, value in vars(home).items() if inspect.isclass(value) and value.__module__ == home.__name__
        ]
        known = {id(value) for value in named.values()}
        named.update({f"{module}.{name}": getattr(home, name) for name in told if id(getattr(home, name)) not in known})
    return {name: value for name, value in named.items() if not inspect.ismodule(value)}


def documented_names(pages):
    """Return the names that the pages of the API show, with how often they do."""
    directives = (re.findall(r"^::: qdq_workbench\.(\S+)$", page, flags=re.MULTILINE) for page in pages)
    return collections.Counter(name for found in directives for name in found)


def faults(pages):
    """Return the public names that are not on exactly one page, and what is on a page and not public."""
    shown, public = documented_names(pages), set(public_objects())
    return sorted({name for name in public if shown[name] != 1} | (set(shown) - public))


def api_pages():
    return [path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md"))]


def test_every_public_name_is_on_exactly_one_page_of_the_api():
    assert faults(api_pages()) == []


def test_every_public_name_of_the_widgets_is_on_the_page_of_the_workbench():
    page = (DOCS / "api/workbench.md").read_text(encoding="utf-8")

    assert sorted(re.findall(r"^::: qdq_widgets\.(\S+)$", page, flags=re.MULTILINE)) == sorted(qdq_widgets.__all__)


def test_methods_of_parts_are_shown_as_methods():
    griffe = pytest.importorskip("griffe")
    script = str(DOCS / "site" / "docstrings.py")
    loaded = griffe.load(
        "qdq_widgets", search_paths=[ROOT / "widgets"], extensions=griffe.load_extensions(script), resolve_aliases=True
    )

    assert loaded["workbench.Workbench.toggle"].is_function
    assert "layer" in loaded["workbench.Workbench.toggle"].docstring.value
    assert loaded["workbench.Workbench.find"].is_function
    assert loaded["workbench.Workbench.continue_from"].is_function
    assert loaded["workbench.Workbench.selection"].is_attribute


def test_a_public_name_without_a_page_is_found(monkeypatch):
    monkeypatch.setitem(MODULES, "transforms", (*MODULES["transforms"], "fold_batch_norm"))
    monkeypatch.setattr("qdq_workbench.transforms.fold_batch_norm", qdq.fold_batch_norm, raising=False)
    assert faults(api_pages()) == ["transforms.fold_batch_norm"]


def test_a_name_on_two_pages_and_one_that_is_not_public_are_found():
    pages = [*api_pages(), "::: qdq_workbench.strip\n\n::: qdq_workbench.errors.first_line\n"]

    assert faults(pages) == ["errors.first_line", "strip"]


@pytest.mark.parametrize("module", ["tfmot", "mct"])
def test_the_page_on_migrating_tells_of_every_name_of_the_interfaces(module):
    page = (DOCS / "migrating.md").read_text(encoding="utf-8")

    assert [name for name in importlib.import_module(f"qdq_workbench.{module}").__all__ if name not in page] == []


def test_every_page_of_the_api_is_named_by_the_first():
    names = {path.name for path in (DOCS / "api").glob("*.md")} - {"index.md"}

    assert set(re.findall(r"\]\((\w+\.md)\)", (DOCS / "api/index.md").read_text(encoding="utf-8"))) == names


@pytest.mark.parametrize(("script", "page"), [("command_page", "commands_page"), ("runtime_page", "runtimes_page")])
def test_pages_made_from_the_code_are_up_to_date(script, page):
    module = load(script)

    assert getattr(module, page)() == module.PAGE.read_text(encoding="utf-8"), f"run: python docs/site/{script}.py"


def test_the_page_of_ratios_shows_every_ratio_once_but_those_of_slower_code():
    page = load("ratios_page").ratios_page(
        '{"cores": 2, "ratios": {"a net, step: ours / float": 1.2345, "a net, step, processor time: ours / float": 2,'
        ' "a net: export / tf2onnx": 0.5, "a net, training step: ours / float": 3}}'
    )

    assert page.endswith("| a net, step | ours / float | 1.23 | 2.00 |\n| a net | export / tf2onnx | 0.50 | - |\n")


def test_links_of_the_package_page_lead_to_the_repository_where_it_has_an_address():
    text = "![a](docs/a.png)\n\n[b](docs/b.md#c) [d](https://d)\n"
    package_page = load("package_page").package_page

    assert package_page(text, None) == "b [d](https://d)\n"
    assert package_page(text, "https://git/us") == (
        "![a](https://git/us/raw/HEAD/docs/a.png)\n\n[b](https://git/us/blob/HEAD/docs/b.md#c) [d](https://d)\n"
    )


def parsed(folders, text):
    """Yield file name and syntax tree of the modules that hold a text: only these need the time to be parsed."""
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if text in source:
            yield path.name, ast.parse(source)


def test_pages_that_messages_name_exist_under_their_titles():
    assert {"howto/verification_failed.md", "layer_families.md", "importing.md"} <= set(TITLES)
    for path, title in TITLES.items():
        assert (ROOT / "docs" / path).read_text(encoding="utf-8").startswith(f"# {title}\n")
    sections = [
        [argument.value for argument in node.args]
        for _, tree in parsed(["qdq_workbench"], "page(")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "page" and len(node.args) == 2
    ]
    assert ["targets.md", "Processors without VNNI"] in sections
    for path, section in sections:
        assert f"# {section}\n" in (ROOT / "docs" / path).read_text(encoding="utf-8")


def test_messages_name_pages_by_their_titles():
    """Who installed a wheel has no folder `docs` in sight: messages name the command that shows the page."""
    folders = ("qdq_workbench", "widgets/qdq_widgets")
    modules = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    by_path = [
        path.name for path in modules if re.search(r"(?<![\w/])docs/[\w/]+\.md", path.read_text(encoding="utf-8"))
    ]
    assert by_path == []
    unfilled = [
        name
        for name, tree in parsed(folders, "{page(")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "{page(" in node.value
    ]
    assert unfilled == []  # a part of a message that lacks its f


def test_an_argument_without_help_is_refused(monkeypatch):
    module = load("command_page")
    parser = module.build_parser()
    next(iter(parser._actions[-1].choices.values())).add_argument("--mute")
    monkeypatch.setattr(module, "build_parser", lambda: parser)

    with pytest.raises(ValueError, match="--mute"):
        module.commands_page()


def menu(entries):
    """Return the pages of a menu, in order."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            (value,) = entry.values()
            yield from menu([value] if isinstance(value, str) else value)


def test_every_page_is_in_the_menu_once():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [
        page
        for page in menu(config["nav"])
        if not page.startswith(("project/", "records/", "notebooks/")) and page != "index.md"
    ]

    assert sorted(pages) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_pages_for_users_name_no_file_of_the_tests():
    for_developers = {"architecture.md", "extending.md", "peer_tests.md"}
    pages = [path for path in DOCS.rglob("*.md") if path.name not in for_developers]

    assert [path.name for path in pages if re.search(r"`tests/", path.read_text(encoding="utf-8"))] == []


def test_every_notebook_is_in_the_menu_once_behind_their_list():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [page for page in menu(config["nav"]) if page.startswith("notebooks/")]
    notebooks = [f"notebooks/{path.stem}.md" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]

    assert pages == ["notebooks/index.md", *notebooks]


def test_the_list_of_notebooks_tells_title_text_and_steps_of_each():
    module = load("notebook_page")
    page = module.notebooks_page()

    for path in module.notebook_paths():
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        title, about = first.removeprefix("# ").split("\n", 1)
        assert f"## [{title}]({path.name})\n\n{about.strip()}\n" in page
    assert "Steps: A plan with 3-bit weights · Each layer by itself · The cheapest placement" in page


def test_a_notebook_becomes_text_code_and_the_picture_of_its_bench(tmp_path):
    module = load("notebook_page")
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text"]},
        {"cell_type": "markdown", "source": ["Two:\n", "- one\n", "- two\n", "<table><tr><td>\n"]},
        {"cell_type": "code", "source": ["bench"], "outputs": [{"data": {"image/svg+xml": ["<svg>", "</svg>"]}}]},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")

    page = module.notebook_page(path)

    assert page.startswith('# Title\n\nText\n\n<p><a href="a.ipynb" download>')
    assert 'Two:\n\n- one\n- two\n<table markdown="1"><tr markdown="1"><td markdown="1">\n' in page
    assert page.endswith("```python\nbench\n```\n\n![What the cell displays](a_2.svg)\n")
    assert module.pictures(path) == {"a_2.svg": "<svg></svg>"}


def test_the_site_asks_for_nothing_of_the_network():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    assert config["strict"] is True
    assert config["theme"]["font"] is False
    added = [*config["extra"]["polyfills"], *config["extra_css"], *config["extra_javascript"]]
    assert [path for path in added if not (DOCS / path).is_file()] == []
    for path in DOCS.glob("assets/*"):
        assert "http" not in path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
