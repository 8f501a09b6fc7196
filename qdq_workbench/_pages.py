"""The pages of the documentation that messages name: by their titles, because a wheel has no folder `docs`."""

from __future__ import annotations

#: By their places below `docs/`.
TITLES = {
    "first_file.md": "From your model to a verified file",
    "howto/accuracy.md": "My model lost accuracy",
    "howto/custom_layer.md": "Custom layer",
    "howto/verification_failed.md": "Verification failed",
    "importing.md": "Importing models",
    "layer_families.md": "Layer families",
    "targets.md": "Targets: how each inference runtime executes a plan",
}
#: Where they are to be read.
WHERE = (
    "The pages that messages name are in the source archive of this package; `make docs` makes a site of them there."
)


def page(path: str, section: str = "") -> str:
    """Return how a message names a page: its title, and its place in the source archive.

    Args:
        path: The page below `docs/`; a key of `TITLES`.
        section: The title of a section of it.

    Example:
        >>> page("howto/custom_layer.md")
        'the page "Custom layer" (docs/howto/custom_layer.md of the source archive)'
    """
    within = f'"{section}" on ' if section else ""
    return f'{within}the page "{TITLES[path]}" (docs/{path} of the source archive)'
