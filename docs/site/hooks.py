"""What the site shows beside docs/: README, notebooks, changelog, records, linked source files; links that lead there.

A page of the repository links to files of the repository. Where such a file has a page of its own in the site, the link
is rewritten to that page while the site is built.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
from collections.abc import Iterator
from typing import Any

import command_page  # mkdocs puts the folder of a hook on the path
import notebook_page
import runtime_page
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from ratios_page import ratios_page

ROOT = pathlib.Path(__file__).parents[2]
#: Files of the repository that are pages of the navigation.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "records/benchmarks.md",
    "benchmarks/results/ratios.json": "records/ratios.md",
    "notebooks": "notebooks/index.md",
}
_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_FENCED = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"^::: (qdq_(workbench|widgets)\.(\S+))$", flags=re.MULTILINE)
_LOADED = re.compile(r"<(?:script|img|iframe|link|source)\b[^>]*?\b(?:src|href)=\"?(?:https?:)?//[^\"\s>]+[^>]*>")


def on_pre_build(**_: Any) -> None:
    """Refuse pages made from the code that are older than the code.

    The tests ask the same, half an hour later: `make test` builds the site before it starts them.

    Raises:
        PluginError: If the page of the command line or of the runtimes is not what the code would write today.
    """
    for script, made in ((command_page, command_page.commands_page), (runtime_page, runtime_page.runtimes_page)):
        if made() != script.PAGE.read_text(encoding="utf-8"):
            name = f"docs/site/{script.__name__}.py"
            page = script.PAGE.relative_to(ROOT)
            raise PluginError(f"{page} is older than the code it is made from. Run: python {name}")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that stand outside docs/.

    Args:
        files: The files of docs/.
        config: The configuration of mkdocs.

    Returns:
        The same with the others.
    """
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, content=_read(path)))
    for record in sorted((ROOT / "benchmarks" / "results").glob("*.md")):
        path = record.relative_to(ROOT).as_posix()
        files.append(_outside_nav(config, _uri(path), _read(path)))
    for notebook in notebook_page.notebook_paths():
        path = notebook.relative_to(ROOT).as_posix()
        files.append(File.generated(config, _uri(path), content=notebook_page.notebook_page(notebook)))
        files.append(File.generated(config, path, abs_src_path=str(notebook)))
        for name, picture in notebook_page.pictures(notebook).items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    for path in sorted(_linked_sources(files)):
        files.append(_outside_nav(config, _uri(path), f"# {path}\n\n```python\n{_read(path)}```\n"))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let the links of a page lead to pages of the site.

    Args:
        markdown: The text of the page.
        page: The page.

    Returns:
        The text with the site's links.
    """
    origin = _origin(page.file.src_uri)
    if origin is None:
        return markdown
    start = posixpath.dirname(page.file.src_uri)

    def in_site(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), found[2]))
        return found[1] + posixpath.relpath(_uri(path), start or ".")

    if origin.startswith("docs/api/"):
        return _DIRECTIVE.sub(_headed, _LINK.sub(in_site, markdown))
    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(in_site, part) for part in parts)


def _headed(found: re.Match[str]) -> str:
    """Give a public name the heading that users call it by."""
    module = "qdq" if found[2] == "workbench" else "qdq_widgets"
    return f"::: {found[1]}\n    options:\n      heading: {module}.{found[3]}\n      toc_label: {found[3]}"


def on_post_build(config: Any) -> None:
    """Refuse a site that loads anything from the network.

    Args:
        config: The configuration of mkdocs.

    Raises:
        PluginError: If a page names a script, a style, an image or a frame of another host.
    """
    for page in pathlib.Path(config.site_dir).rglob("*.html"):
        for found in _LOADED.finditer(page.read_text(encoding="utf-8")):
            if 'rel="canonical"' not in found[0]:
                raise PluginError(f"{page} loads from the network, which a reader may not have: {found[0]}")


def _uri(path: str) -> str:
    """Return the place in the site of a path of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("benchmarks/results"):
        return "records/" + (path.removeprefix("benchmarks/results").strip("/") or "benchmarks.md")
    if path.endswith(".py"):
        return f"source/{path.removesuffix('.py')}.md"
    return path.removesuffix(".ipynb") + ".md" if path.endswith(".ipynb") else path


def _origin(uri: str) -> str | None:
    """Return the path in the repository of a page of the site; None for source files, whose text is no Markdown."""
    if uri.startswith("source/"):
        return None
    if uri.startswith("notebooks/"):
        return uri
    for path, page in PAGES.items():
        if page == uri:
            return path
    return f"benchmarks/results/{uri.removeprefix('records/')}" if uri.startswith("records/") else f"docs/{uri}"


def _linked_sources(files: Files) -> set[str]:
    """Return the scripts and tests that pages link to."""
    texts = {file.src_uri: file.content_string for file in files if file.src_uri.endswith(".md")}
    linked = {path for uri, text in texts.items() for path in _links(uri, text)}
    return {path for path in linked if path.endswith(".py") and (ROOT / path).is_file()}


def _links(uri: str, text: str) -> Iterator[str]:
    folder = posixpath.dirname(_origin(uri) or "")
    for found in _LINK.finditer(text):
        yield posixpath.normpath(posixpath.join(folder, found[2]))


def _outside_nav(config: Any, uri: str, text: str) -> File:
    file = File.generated(config, uri, content=text)
    file.inclusion = InclusionLevel.NOT_IN_NAV
    return file


def _read(path: str) -> str:
    """Return the text of a page; those of the ratios and of the notebooks are made."""
    made = {"benchmarks/results/ratios.json": ratios_page, "notebooks": notebook_page.notebooks_page}
    return made[path]() if path in made else (ROOT / path).read_text(encoding="utf-8")
