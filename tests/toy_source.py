"""The text of a small module, for the tests of what changes code."""

SOURCE = '''"""A module."""

import functools

LIMIT = 3


def counted(values: list[int] | None, least: int = 2) -> int:
    total = 0
    for value in values or []:
        if value > LIMIT and value % 2 == 0:
            total += value
    return total


@functools.lru_cache
def doubled(value):
    return value * 2


class Box:
    def __init__(self, size):
        self.size = size + 1

    def has(self, value):
        return (lambda other: other < self.size)(value)
'''
