"""environment.yml, CONTRIBUTING.md and pyproject.toml name the same dependencies."""

import re

import yaml
from packaging.requirements import Requirement
from project import ROOT, project_table


def test_environment_mirrors_the_dependencies_and_the_dev_extra():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip_list,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    project = project_table()

    assert pip_list[-1] == "--no-deps --editable ."
    assert pip_list[:-1] == project["dependencies"] + project["optional-dependencies"]["dev"]


def test_environment_allows_only_pythons_that_the_package_allows():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())

    (python,) = [entry for entry in environment["dependencies"] if str(entry).startswith("python>")]

    assert project_table()["requires-python"] in python.removeprefix("python").split(",")


def test_every_dependency_is_justified_in_contributing():
    project = project_table()
    declared = sum(project["optional-dependencies"].values(), project["dependencies"])
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([A-Za-z0-9._-]+)` \|", contributing, flags=re.MULTILINE)

    assert sorted(rows) == sorted({Requirement(line).name for line in declared})
