"""Small faults in the code of the packages: made by cosmic-ray's operators, drawn from a seed.

Left out is what no test could notice: annotations (no code of ours evaluates them), and `is` for `==` and back, which
differ for no small number, string or class. From the variants of one place (`+` becomes `-`, `*`, ...) one is drawn.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import random

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

_LEFT_OUT = ("VariableReplacer", "VariableInserter", "_Is", "_IsNot")  # the first two want arguments


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One changed place of one file.

    Args:
        path: The file, from the root of the repository.
        line: Where the change begins.
        operator: cosmic-ray's operator.
        occurrence: Which of the operator's places in the file.
        text: The line as it is.
        changed: The first line that differs.
    """

    path: str
    line: int
    operator: str
    occurrence: int
    text: str
    changed: str

    @property
    def key(self):
        """The mutant's name in the records: no line number, which moves with every edit above it."""
        return f"{self.path} | {self.text} -> {self.changed}"

    def source(self, root):
        """Return the text of the whole file with the change in it."""
        return mutate_code((root / self.path).read_text(encoding="utf-8"), _operator(self.operator), self.occurrence)


def draw(root: pathlib.Path, paths: list[str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants of some files, each from a place of its own; a longer sample begins with the shorter one.

    Args:
        root: The repository.
        paths: The files, from there.
        count: How many, fewer where the files have fewer places.
        seed: Another seed draws others.

    Returns:
        The mutants, in the order of the draw.
    """
    generator = random.Random(f"{seed} {sorted(paths)}")  # noqa: S311 - a sample, no secret
    left: dict[str, list] = {}
    weights = {path: len((root / path).read_text(encoding="utf-8")) for path in sorted(paths)}
    drawn = []
    while len(drawn) < count and weights:
        path = generator.choices(list(weights), list(weights.values()))[0]
        if path not in left:
            left[path] = _places(root / path)
            generator.shuffle(left[path])
        if not left[path]:
            del weights[path]
            continue
        mutant = _mutant(root, path, *generator.choice(left[path].pop()))
        if mutant is not None:
            drawn.append(mutant)
    return drawn


def _places(path):
    """Return the variants at every position of a file, each variant an operator and which of its places it is."""
    nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in sorted(plugins.operator_names()):
        if name.endswith(_LEFT_OUT):
            continue
        operator = _operator(name)
        positions = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, position in enumerate(positions):
            found.setdefault(position, []).append((name, occurrence))
    return [found[position] for position in sorted(found)]


def _mutant(root, path, name, occurrence):
    """Make a mutant; None where only annotations differ, or nothing, or where it is no Python."""
    before = (root / path).read_text(encoding="utf-8")
    after = mutate_code(before, _operator(name), occurrence)
    try:
        if after is None or _meaning(before) == _meaning(after):
            return None
    except SyntaxError:
        return None
    for number, (old, new) in enumerate(zip(before.splitlines(), after.splitlines(), strict=False), start=1):
        if old != new and old.strip():  # with a decorator the lines between it and what is before it go
            return Mutant(path, number, name, occurrence, old.strip(), new.strip())
    return None


class _Plain(ast.NodeTransformer):
    """Drops annotations."""

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node):
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _meaning(source):
    return ast.dump(_Plain().visit(ast.parse(source)))


def _operator(name):
    return plugins.get_operator(name)()
