"""Pages of the notebooks: each as a page of the site, and a list of them made from their first cells."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"
PICTURE = "image/svg+xml"
_HEAD = """\
# Notebooks

Each runs on two CPU cores in three minutes at most, from data that come with scikit-learn or are generated; a comment
`your data here` marks what to replace. `qdq-workbench lab` opens the first one in JupyterLab; the others lie beside it
in a checkout, and each page has a link that downloads its notebook. The pages show text and code; outputs are made
where you run them, except for a picture of each bench.
"""
_NOTE = """\
<p><a href="{name}.ipynb" download>Download this notebook</a> to run it: <code>qdq-workbench lab {name}.ipynb</code></p>
"""
_CELL_OF_TABLE = re.compile(r"<(table|tr|td)>")
_LIST_ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def notebook_paths() -> list[pathlib.Path]:
    """Return all notebooks in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def notebooks_page() -> str:
    """Return the list of notebooks as Markdown, with links as from their folder."""
    return "\n".join([_HEAD, *(_entry(path) for path in notebook_paths())])


def notebook_page(path: pathlib.Path) -> str:
    """Return a notebook as Markdown, with links as from its folder."""
    title, *parts = [_part(path, place, cell) for place, cell in enumerate(_cells(path))]
    return "\n".join([title, _NOTE.format(name=path.stem), *parts])


def pictures(path: pathlib.Path) -> dict[str, str]:
    """Return the pictures that are kept in a notebook, as SVG, by the names of their files."""
    found = {}
    for place, cell in enumerate(_cells(path)):
        for output in cell.get("outputs", ()):
            if PICTURE in output.get("data", {}):
                found[_picture(path, place)] = "".join(output["data"][PICTURE])
    return found


def _entry(path: pathlib.Path) -> str:
    texts = ["".join(cell["source"]) for cell in _cells(path) if cell["cell_type"] == "markdown"]
    title, about = texts[0].removeprefix("# ").split("\n", 1)
    steps = re.findall(r"^## (?:\d+\. )?(.*)$", "\n".join(texts), flags=re.MULTILINE)
    return f"## [{title}]({path.name})\n\n{about.strip()}\n\nSteps: {' · '.join(steps)}.\n"


def _part(path: pathlib.Path, place: int, cell: dict[str, Any]) -> str:
    """Return a cell as Markdown, with the picture that it displays."""
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return f"{_for_the_site(text)}\n"
    shown = any(PICTURE in output.get("data", {}) for output in cell.get("outputs", ()))
    below = f"\n![What the cell displays]({_picture(path, place)})\n" if shown else ""
    return f"```python\n{text}\n```\n{below}"


def _for_the_site(text: str) -> str:
    """Return the text of a cell as the site's Markdown needs it: lists behind an empty line, marked tables."""
    lines: list[str] = []
    for line in _CELL_OF_TABLE.sub(r'<\1 markdown="1">', text).split("\n"):
        before = lines[-1] if lines else ""
        if _LIST_ITEM.match(line) and before and not _LIST_ITEM.match(before) and not before.startswith(" "):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _picture(path: pathlib.Path, place: int) -> str:
    return f"{path.stem}_{place}.svg"


def _cells(path: pathlib.Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells
