"""Where the repository is, and what its pyproject.toml says, for the tests that check the project itself."""

import pathlib
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pyproject():
    """Return pyproject.toml as a dictionary."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def project_table():
    """Return the [project] table of pyproject.toml."""
    return pyproject()["project"]
