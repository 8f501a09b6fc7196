"""The pages of docs/ in the wheel, for `qdq-workbench docs`."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PagesInWheel(BuildHookInterface[Any]):
    """Adds the pages that users read to the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files.

        Args:
            version: "standard" or "editable"; an editable installation reads the pages of the checkout.
            build_data: What the wheel contains, which is changed.
        """
        if version == "editable":
            return
        root = pathlib.Path(self.root)
        spec = importlib.util.spec_from_file_location("pages", root / "qdq_workbench" / "_pages.py")
        pages = importlib.util.module_from_spec(spec)  # the package itself has dependencies, which a build has not
        spec.loader.exec_module(pages)
        for path in pages.page_paths(root / "docs"):
            build_data["force_include"][str(root / "docs" / path)] = f"qdq_workbench/docs/{path}"
