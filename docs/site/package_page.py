"""README.md for a package page, where links relative to the repository lead nowhere.

With an address `Repository` in `[project.urls]` they lead there; without one, their text stays and pictures go.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[([^\]]*)\]\((?!https?:)([^)]+)\)\n+", flags=re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")
_FENCED = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)


class PackagePage(MetadataHookInterface):
    """Gives the metadata of a wheel or source archive their description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description.

        Args:
            metadata: The project table, which is changed.
        """
        text = (pathlib.Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": package_page(text, metadata.get("urls", {}).get("Repository")),
        }


def package_page(text: str, repository: str | None) -> str:
    """Return a page of the repository without relative links; without an address, the paths of tests stay.

    Args:
        text: The page, as Markdown.
        repository: The address of the repository, as GitHub has it; None if there is none.
    """
    linked: str | Callable[[re.Match[str]], str] = _named
    if repository is None:
        text = _PICTURE.sub("", text)
    else:
        text = _PICTURE.sub(rf"![\1]({repository}/raw/HEAD/\2)\n\n", text)
        linked = rf"[\1]({repository}/blob/HEAD/\2)"
    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(linked, part) for part in parts)


def _named(found: re.Match[str]) -> str:
    return f"`{found[2]}`" if found[2].startswith("tests/") else found[1]
