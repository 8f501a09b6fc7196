"""How the source is read for the site, where this repository writes what griffe does not know."""

from __future__ import annotations

import re
from typing import Any

import griffe


class OneExample(griffe.Extension):
    """Renames the section `Example` to `Examples`, so that its lines are shown as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring.

        Args:
            obj: A module, class, function or attribute.
        """
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)


class MethodsOfParts(griffe.Extension):
    """Shows `toggle = step_of("_plans", Plans.toggle)` and `continue_from = continue_bench` of a class as methods."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace such attributes of all classes of a package.

        Args:
            pkg: The package, after it was read.
        """
        for module in pkg.modules.values():
            for owner in module.classes.values():
                if not owner.is_alias:
                    _replace(owner, pkg)


def _replace(owner: griffe.Class, package: griffe.Module) -> None:
    for name, attribute in list(owner.attributes.items()):
        found = re.fullmatch(r"(?:of_part|step_of)\(['\"]\w+['\"], (\w+)\.(\w+)\)", str(attribute.value))
        if found:
            part = owner.resolve(found[1]).removeprefix(f"{package.path}.")
            owner.set_member(name, package[part][found[2]])
        elif str(attribute.value).isidentifier() and (function := _function(owner, str(attribute.value), package)):
            owner.set_member(name, function)


def _function(owner: griffe.Class, name: str, package: griffe.Module) -> griffe.Object | None:
    """Return the function of the package that a name stands for in a class; None where it is something else."""
    try:
        path = owner.resolve(name)
    except griffe.NameResolutionError:
        return None
    if not path.startswith(f"{package.path}."):
        return None
    found = package[path.removeprefix(f"{package.path}.")]
    return found if found.is_function else None
