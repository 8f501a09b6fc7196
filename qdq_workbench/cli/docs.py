"""`qdq-workbench docs`: read and search the pages of the documentation, which are part of the package."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Iterator, Mapping

from qdq_workbench._pages import page_paths, pages_folder
from qdq_workbench.cli.outcome import Command, Outcome
from qdq_workbench.errors import FileAccessError, SpecError

_HEADING = re.compile(r"^(#+) (.+)$")
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)\n*")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "page",
        nargs="?",
        metavar="PAGE",
        help='name or title, such as targets or "Custom layer"; default: list the pages',
    )
    parser.add_argument(
        "section", nargs="?", metavar="SECTION", help="heading of a part of the page; default: all of it"
    )
    parser.add_argument("--search", metavar="TEXT", help="list the sections that contain a text")


def _run(options: argparse.Namespace) -> Outcome:
    folder = pages_folder()
    if folder is None:
        raise FileAccessError(
            "The pages of the documentation are not installed. They are part of the wheel and of the source archive: "
            "install one of these again."
        )
    pages = {path.removesuffix(".md"): (folder / path).read_text(encoding="utf-8") for path in page_paths(folder)}
    if options.search is not None:
        if options.page is not None:
            raise SpecError(f"--search looks through all pages; give no page. Received: {options.page!r}")
        if not _read(options.search):
            raise SpecError(f"Give --search a text to look for. Received: {options.search!r}")
        return _search(pages, options.search)
    if options.page is None:
        return _list(pages)
    name = _find(options.page, {name: _title(text) for name, text in pages.items()}, "page")
    text = pages[name]
    if options.section is not None:
        sections = dict(_sections(text))
        text = sections[_find(options.section, {heading: heading for heading in sections}, f"section of {name}")]
    data = {"page": name, "title": _title(pages[name]), "path": str(folder / f"{name}.md"), "text": text}
    return Outcome(_rendered(text) if _to_terminal() else text.rstrip("\n"), data)


def _list(pages: Mapping[str, str]) -> Outcome:
    titles = {name: _title(text) for name, text in pages.items()}
    width = max(map(len, titles))
    lines = [f"{name:<{width}}  {title}" for name, title in titles.items()]
    hint = "Read one: qdq-workbench docs PAGE. Find one: qdq-workbench docs --search TEXT"
    return Outcome("\n".join([*lines, "", hint]), {"pages": titles})


def _search(pages: Mapping[str, str], text: str) -> Outcome:
    """List the commands that show the sections with a text; the check fails if there are none."""
    found = [
        (name, heading)
        for name, page in pages.items()
        for heading, content in _sections(page)
        if _read(text) in _read(_own_part(content))
    ]
    lines = [f"qdq-workbench docs {name} {shlex.quote(heading)}" for name, heading in found]
    data = {"sections": [{"page": name, "section": heading} for name, heading in found]}
    return Outcome("\n".join(lines) or f"No page contains {text!r}", data, passed=bool(found))


def _find(wanted: str, titles: Mapping[str, str], what: str) -> str:
    """Return the name that is meant by a name, its last part or its title.

    Raises:
        FileAccessError: If there is none.
    """
    forms: dict[str, str] = {}
    for name, title in titles.items():
        # setdefault: a short form that two pages share stays with the first one.
        for form in (name, name.rpartition("/")[2], title):
            forms.setdefault(_plain(form), name)
    plain = _plain(wanted.removesuffix(".md"))
    if plain not in forms:
        close = [forms[form] for form in difflib.get_close_matches(plain, forms, n=3)]
        known = list(dict.fromkeys(close)) or sorted(titles)
        raise FileAccessError(
            f"There is no such {what}; did you mean: {', '.join(known)}? `docs --search TEXT` lists what contains a "
            f"text. Received: {wanted!r}"
        )
    return forms[plain]


def _read(text: str) -> str:
    """Return a text as a search compares it: without its line breaks, capitals, links and emphasis."""
    return " ".join(re.sub(r"\*\*|`", "", _LINK.sub(r"\1", text)).split()).casefold()


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text).strip().casefold()


def _title(text: str) -> str:
    return next((heading for heading, _ in _sections(text)), "")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of every section, the subsections included; the first one is the page."""
    lines = text.splitlines(keepends=True)
    headings = list(_headings(lines))
    for place, (start, level, heading) in enumerate(headings):
        end = next((line for line, deep, _ in headings[place + 1 :] if deep <= level), len(lines))
        yield heading, "".join(lines[start:end])


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield line number, level and text of every heading."""
    in_code = False
    for number, line in enumerate(lines):
        # In a code block, a line that begins with # is a comment of Python or of a shell.
        if line.startswith("```"):
            in_code = not in_code
        found = None if in_code else _HEADING.match(line)
        if found is not None:
            yield number, len(found[1]), found[2].strip()


def _own_part(section: str) -> str:
    """Return a section without its subsections, so that a search names the smallest one."""
    lines = section.splitlines(keepends=True)
    ends = [number for number, _, _ in _headings(lines)][1:2]
    return "".join(lines[: ends[0]] if ends else lines)


def _to_terminal() -> bool:
    out = sys.__stdout__  # `main` directs sys.stdout elsewhere while a command runs
    return out is not None and out.isatty()


def _rendered(text: str) -> str:
    """Return a page for the terminal: headings and tables drawn, without pictures and the links between pages."""
    from rich.console import Console
    from rich.markdown import Markdown

    # Rich would ask sys.stderr, to which `main` directs sys.stdout, whether it is a terminal.
    console = Console(force_terminal=True)
    with console.capture() as captured:
        console.print(Markdown(_RELATIVE_LINK.sub(r"\1", _PICTURE.sub("", text))))
    return captured.get().rstrip("\n")


DOCS = Command(
    "docs", "Read and search the pages of the documentation.", _configure, _run, reads_models=False, needs_keras=False
)
