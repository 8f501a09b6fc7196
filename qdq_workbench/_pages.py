"""The pages of the documentation that are part of the package: read by `qdq-workbench docs`, and named by messages."""

from __future__ import annotations

import pathlib

#: Titles by path below `docs/`, of the pages that messages name: making a message must not read files.
TITLES = {
    "first_file.md": "From your model to a verified file",
    "howto/accuracy.md": "My model lost accuracy",
    "howto/custom_layer.md": "Custom layer",
    "howto/firmware.md": "Ship to firmware",
    "howto/four_bits.md": "4 bits",
    "howto/speed.md": "My INT8 file is not faster",
    "howto/verification_failed.md": "Verification failed",
    "importing.md": "Importing models",
    "layer_families.md": "Layer families",
    "targets.md": "Targets: how each inference runtime executes a plan",
}
#: How the user reads these pages.
WHERE = "Read the pages that messages name, and all others, with qdq-workbench docs"
#: Folders of `docs` whose files only make a site.
SITE_ONLY = frozenset({"api", "assets", "images", "site"})


def page(path: str, section: str = "") -> str:
    """Return the reference to a page for a message: its title, and the command that shows it.

    Args:
        path: The path of the page below `docs/`; a key of `TITLES`.
        section: The title of a section of the page; empty for the page.

    Example:
        >>> page("howto/custom_layer.md")
        'the page "Custom layer" (qdq-workbench docs custom_layer)'
    """
    within, part = (f'"{section}" on ', f' "{section}"') if section else ("", "")
    return f'{within}the page "{TITLES[path]}" (qdq-workbench docs {pathlib.PurePosixPath(path).stem}{part})'


def pages_folder() -> pathlib.Path | None:
    """Return the folder of the pages, in the checkout or in the installed package; None if there is none."""
    package = pathlib.Path(__file__).resolve().parent
    folders = (package.parent / "docs", package / "docs")
    return next((folder for folder in folders if (folder / "first_file.md").is_file()), None)


def page_paths(folder: pathlib.Path) -> list[str]:
    """Return the paths of all pages below the folder `docs`, of the repository or of the package.

    Args:
        folder: That folder.
    """
    paths = (path.relative_to(folder) for path in folder.rglob("*.md"))
    return sorted(path.as_posix() for path in paths if path.parts[0] not in SITE_ONLY)
