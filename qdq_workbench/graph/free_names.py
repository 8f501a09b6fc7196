"""Unique names: repeated names get a number."""

from __future__ import annotations

from collections.abc import Container


def free_name(name: str, taken: Container[str], separator: str = "_") -> str:
    """Return the name, with a number from 2 on if it is taken.

    Example:
        >>> free_name("conv", {"conv", "conv_2"})
        'conv_3'
    """
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}{separator}{number}"
    return candidate


def take_name(name: str, taken: set[str], separator: str = "_") -> str:
    """Return the result of `free_name`, and add it to the taken names.

    Example:
        >>> taken = {"conv"}
        >>> take_name("conv", taken, "~"), sorted(taken)
        ('conv~2', ['conv', 'conv~2'])
    """
    found = free_name(name, taken, separator)
    taken.add(found)
    return found
