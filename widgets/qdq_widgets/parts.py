"""Methods that a class has from its parts: each is written, typed and described once, where its work is done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def of_part(name: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls the method of a part, with its signature and its docstring.

    Args:
        name: The attribute that holds the part.
        method: The method, of the part's class; `self` is positional where it takes keywords of any name.
    """

    def call(owner: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(owner, name), *args, **kwargs)

    return functools.update_wrapper(call, method)


def step_of(name: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method like `of_part` does, which the bench's journal notes where it succeeds.

    Args:
        name: The attribute that holds the part.
        method: The method, of the part's class.
    """

    def call(owner: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with owner.journal.noting(method.__name__, args, kwargs) as noted:
            done = method(getattr(owner, name), *args, **kwargs)
            owner.journal.finish(noted, done)
            return done

    return functools.update_wrapper(call, method)
