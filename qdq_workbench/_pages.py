"""References to pages of the documentation in messages, by title, because a wheel does not contain `docs`."""

from __future__ import annotations

#: Titles by path below `docs/`.
TITLES = {
    "first_file.md": "From your model to a verified file",
    "howto/accuracy.md": "My model lost accuracy",
    "howto/custom_layer.md": "Custom layer",
    "howto/firmware.md": "Ship to firmware",
    "howto/verification_failed.md": "Verification failed",
    "importing.md": "Importing models",
    "layer_families.md": "Layer families",
    "targets.md": "Targets: how each inference runtime executes a plan",
}
#: How the user gets these pages.
WHERE = (
    "The pages that messages name are in the source archive of this package; `make docs` makes a site of them there."
)


def page(path: str, section: str = "") -> str:
    """Return the reference to a page for a message: its title, and its path in the source archive.

    Args:
        path: The path of the page below `docs/`; a key of `TITLES`.
        section: The title of a section of the page; empty for the page.

    Example:
        >>> page("howto/custom_layer.md")
        'the page "Custom layer" (docs/howto/custom_layer.md of the source archive)'
    """
    within = f'"{section}" on ' if section else ""
    return f'{within}the page "{TITLES[path]}" (docs/{path} of the source archive)'
