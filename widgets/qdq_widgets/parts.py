"""Methods that a class delegates to its parts: each is implemented, typed and documented once, in the part."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def of_part(name: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that calls the method of the part in attribute `name`, with its signature and its docstring.

    The method's `self` is positional-only if it takes arbitrary keywords.
    """

    def call(owner: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(owner, name), *args, **kwargs)

    return functools.update_wrapper(call, method)


def step_of(name: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method like that of `of_part`, whose successful calls are recorded in the bench's journal."""

    def call(owner: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with owner.journal.noting(method.__name__, args, kwargs) as noted:
            done = method(getattr(owner, name), *args, **kwargs)
            owner.journal.finish(noted, done)
            return done

    return functools.update_wrapper(call, method)
