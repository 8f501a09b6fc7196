"""`qdq-workbench docs`: the pages by name, title and section, the search, and every page that code names."""

import json
import re
import subprocess
import sys

import pytest
from project import ROOT

from qdq_workbench import _pages
from qdq_workbench.cli import docs

PACKAGES = (ROOT / "qdq_workbench", ROOT / "widgets" / "qdq_widgets")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder of two pages that stands for the documentation."""
    (tmp_path / "howto").mkdir()
    (tmp_path / "api").mkdir()
    (tmp_path / "first_file.md").write_text(
        "# First file\n\nSee [this](howto/ship.md) and [that](https://a.b).\n\n"
        "## On a board\n\n```sh\n# Not a heading: gain\n```\n\n### Gain\n\nText of `it`.\n\n## End\n\nLast.\n"
    )
    (tmp_path / "howto" / "ship.md").write_text("# Ship a model\n\n![a](b.png)\n\nZero **point**.\n")
    (tmp_path / "api" / "files.md").write_text("# Files\n")
    monkeypatch.setattr(docs, "pages_folder", lambda: tmp_path)
    return tmp_path


def test_pages_are_listed_with_their_titles(cli, folder):
    code, out, _ = cli("docs")

    assert code == 0
    assert out.splitlines()[:2] == ["first_file  First file", "howto/ship  Ship a model"]


@pytest.mark.parametrize("name", ["howto/ship", "howto/ship.md", "ship", "Ship a model", "ship-a  Model"])
def test_a_page_is_found_by_path_by_the_last_part_of_it_and_by_title(cli, folder, name):
    code, out, _ = cli("docs", name)

    assert code == 0
    assert out == (folder / "howto" / "ship.md").read_text()


def test_a_section_ends_where_one_of_its_level_begins(cli, folder):
    _, out, _ = cli("docs", "first_file", "on a board")

    assert out.startswith("## On a board\n")
    assert out.endswith("Text of `it`.\n")
    assert cli("docs", "first_file", "Gain")[1] == "### Gain\n\nText of `it`.\n"


def test_a_comment_in_code_is_no_section(cli, folder):
    code, _, error = cli("docs", "first_file", "Not a heading: gain")

    assert code == 2
    assert "no such section of first_file" in error


def test_a_page_that_is_not_there_is_named_with_those_that_are_alike(cli, folder):
    code, out, error = cli("docs", "first_fiel")

    assert (code, out) == (2, "")
    assert "did you mean: first_file?" in error
    assert "'first_fiel'" in error
    assert "did you mean: first_file, howto/ship?" in cli("docs", "files")[2]


def test_the_search_prints_commands_that_show_the_smallest_sections(cli, folder):
    assert cli("docs", "--search", "TEXT of")[1] == "qdq-workbench docs first_file Gain\n"
    assert cli("docs", "--search", "not a heading")[1] == "qdq-workbench docs first_file 'On a board'\n"
    code, out, _ = cli("docs", "--search", "gemmlowp")
    assert (code, out) == (1, "No page contains 'gemmlowp'\n")
    assert cli("docs", "ship", "--search", "gain")[0] == 2


def test_json_has_the_file(cli, folder):
    found = json.loads(cli("docs", "ship", "--json")[1])

    assert found["title"] == "Ship a model"
    assert found["path"] == str(folder / "howto/ship.md")
    assert found["text"] == (folder / "howto" / "ship.md").read_text()
    assert json.loads(cli("docs", "--search", "last", "--json")[1])["sections"] == [
        {"page": "first_file", "section": "End"}
    ]


def test_a_terminal_gets_no_marks_no_pictures_and_no_links_that_lead_nowhere(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    plain = [
        re.sub(r"\x1b\[[\d;]*m", "", re.sub(r"\x1b]8;[^\x1b]*\x1b\\", "", docs._rendered((folder / name).read_text())))
        for name in ("first_file.md", "howto/ship.md")
    ]

    assert "See this and that." in plain[0]
    assert "Zero point." in plain[1]
    assert "b.png" not in plain[1]


def test_an_installation_without_pages_says_how_to_get_them(cli, monkeypatch):
    monkeypatch.setattr(docs, "pages_folder", lambda: None)
    code, _, error = cli("docs")

    assert code == 2
    assert "install" in error


def test_pages_are_found_in_the_checkout_and_in_the_package(tmp_path, monkeypatch):
    assert _pages.pages_folder() == ROOT / "docs"
    monkeypatch.setattr(_pages, "__file__", str(tmp_path / "qdq_workbench" / "_pages.py"))
    assert _pages.pages_folder() is None
    (tmp_path / "docs").mkdir()  # somebody else's
    inside = tmp_path / "qdq_workbench" / "docs"
    inside.mkdir(parents=True)
    (inside / "first_file.md").write_text("# First\n")
    assert _pages.pages_folder() == inside


def test_pages_that_only_make_the_site_are_left_out():
    paths = _pages.page_paths(ROOT / "docs")

    assert set(_pages.TITLES) <= set(paths)
    assert {path.split("/")[0] for path in paths if "/" in path} == {"concepts", "howto"}


def named_by_code():
    """Yield every page that a text of both packages names by its command."""
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            yield from re.findall(r"\(qdq-workbench docs (\w+)\)", path.read_text(encoding="utf-8"))


def test_pages_that_texts_name_are_there(cli):
    names = {*named_by_code(), *(re.search(r"docs (\w+)", _pages.page(path))[1] for path in _pages.TITLES)}

    assert {"firmware", "verification_failed"} <= names
    for name in names:
        assert cli("docs", name)[0] == 0, name


def test_reading_imports_neither_keras_nor_the_library():
    code = (
        "import sys; from qdq_workbench.cli.main import main; main(['docs', 'glossary']);"
        "assert not {'keras', 'tensorflow', 'onnx'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Glossary\n")


def test_a_search_reads_over_line_breaks_marks_and_links(cli, folder):
    (folder / "howto" / "ship.md").write_text(
        "# Ship a model\n\nThe zero\n**point** of [a grid](../grid.md) is\n`0`.\n"
    )

    for text in ("zero point", "point of a grid is 0", "**point**"):
        assert cli("docs", "--search", text)[1] == "qdq-workbench docs howto/ship 'Ship a model'\n"
    assert cli("docs", "--search", "grid.md")[0] == 1


@pytest.mark.parametrize("text", [" ", "  "])  # an empty one is refused for every option
def test_a_search_for_nothing_is_refused(cli, folder, text):
    code, out, error = cli("docs", "--search", text)

    assert (code, out) == (2, "")
    assert "Give --search a text" in error
