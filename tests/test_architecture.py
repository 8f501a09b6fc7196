"""The import contracts hold, and each of them breaks when a breach is planted; so does the rule on identities."""

import ast
import dataclasses
import functools
import graphlib
import inspect
import os
import pathlib
import shutil
import subprocess
import sys

import onnx
import pytest
from class_lists import (
    EXCUSED,
    FIRMWARES,
    ONNX_OPERATORS,
    OPERATORS_LISTED,
    TENSORFLOWS,
    lists_in,
    names_asked_for,
    operators_in,
    sources,
)
from keras_classes import CLASSES
from named_modules import MODULES
from project import ROOT, pyproject

import qdq_workbench as qdq
from qdq_workbench import errors
from qdq_workbench.graph.kinds import KINDS

LINT_IMPORTS = pathlib.Path(sys.executable).with_name("lint-imports")


@dataclasses.dataclass(frozen=True)
class Breach:
    """A line that must not be written, where it would be written, and the contract that must notice."""

    contract: str
    module: str
    line: str


BREACHES = [
    Breach("layers", "qdq_workbench/spec/quantizer_spec.py", "import qdq_workbench.placement.plan"),
    Breach("layers", "qdq_workbench/report/curves.py", "import qdq_workbench.cli.main"),
    Breach("layers", "qdq_workbench/a_new_room.py", "import qdq_workbench.errors"),
    Breach("framework-free", "qdq_workbench/graph/model_graph.py", "import keras"),
    Breach("framework-free", "qdq_workbench/placement/plan.py", "import tensorflow"),
    Breach("framework-free", "qdq_workbench/runtimes/facts.py", "import onnxruntime"),
    Breach("onnx", "qdq_workbench/report/curves.py", "import onnxruntime"),
    Breach("conversion", "qdq_workbench/conversion/engine/strip.py", "import qdq_workbench.conversion.files.keras2"),
    Breach("passes", "qdq_workbench/export/passes/fold_pads.py", "import qdq_workbench.placement.plan"),
    Breach("headless", "qdq_workbench/report/curves.py", "import ipywidgets"),
    Breach("headless", "qdq_workbench/cli/plan.py", "import qdq_widgets"),
    Breach("drawing", "qdq_workbench/placement/plan.py", "import plotly"),
    Breach(
        "targets", "qdq_workbench/placement/targets/tensorrt.py", "import qdq_workbench.placement.targets.onnxruntime"
    ),
    Breach("panes", "widgets/qdq_widgets/panes/spec.py", "import qdq_widgets.panes.cases"),
    Breach("widgets", "widgets/qdq_widgets/__init__.py", "import qdq_workbench.placement.plan"),
]


def lint(folder):
    """Run lint-imports on the packages in a folder, which shadow the installed ones."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(folder / "widgets")])}
    environment["COLUMNS"] = "400"  # no line is wrapped
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def copied(folder):
    """Copy the packages and their contracts to a folder."""
    only_sources = shutil.ignore_patterns("__pycache__", "static", "node_modules")
    for package in ("qdq_workbench", "widgets/qdq_widgets"):
        shutil.copytree(ROOT / package, folder / package, ignore=only_sources)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """What is said of each broken contract, by its id, where all breaches are planted at once."""
    folder = copied(tmp_path_factory.mktemp("breaches"))
    for breach in BREACHES:
        with (folder / breach.module).open("a") as module:
            module.write(f"\n{breach.line}\n")
    finished = lint(folder)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    names = {contract["name"]: contract["id"] for contract in pyproject()["tool"]["importlinter"]["contracts"]}
    said, found = [], {}
    for line in finished.stdout.partition("Broken contracts")[2].splitlines():
        if line in names:
            said = found.setdefault(names[line], [])
        said.append(line.strip(" -"))
    return found


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: f"{breach.contract}: {breach.line}")
def test_a_planted_breach_breaks_its_contract(broken, breach):
    dotted = breach.module.removeprefix("widgets/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    imported = breach.line.removeprefix("import ")
    # A package that no contract knows is named as such, whatever it imports.
    expected = dotted if dotted.endswith("a_new_room") else f"{dotted} -> {imported}"
    assert expected in {line.partition(" (")[0] for line in broken[breach.contract]}


def test_every_contract_has_a_breach_that_breaks_it():
    contracts = {contract["id"] for contract in pyproject()["tool"]["importlinter"]["contracts"]}

    assert contracts == {breach.contract for breach in BREACHES}


def test_the_contracts_hold(tmp_path):
    finished = lint(copied(tmp_path))

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "BROKEN" not in finished.stdout


def test_top_level_holds_only_the_agreed_rooms():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    folders = {path.split("/")[0] for path in tracked.splitlines() if "/" in path}

    assert folders <= {"qdq_workbench", "notebooks", "widgets", "tests", "docs", "benchmarks", ".ci", ".github"}


def test_no_source_file_is_longer_than_400_lines():
    sources = [*ROOT.glob("qdq_workbench/**/*.py"), *ROOT.glob("widgets/qdq_widgets/**/*.py")]

    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources}

    assert {path: length for path, length in lengths.items() if length > 400} == {}


#: Modules of more than 150 lines without a test file of their name, and where their tests are.
TESTED_ELSEWHERE = {
    "qdq_workbench/__init__.py": "the public names: tests/test_public_api.py",
    "qdq_workbench/diagnosis/fixes.py": "each cause is planted and its fix measured: tests/diagnosis/test_diagnose.py",
    "qdq_workbench/export/passes/order.py": "the list of passes, each with a test: tests/export/test_passes.py",
}


def without_tests(lengths, tests):
    """Return the modules of more than 150 lines that no test file in their room, or below it, is named after."""
    found = set()
    for path in (path for path, length in lengths.items() if length > 150):
        *folders, stem = pathlib.PurePath(path).with_suffix("").parts
        name = folders[-1] if stem == "__init__" else stem.lstrip("_")
        room = "widgets" if folders[0] == "widgets" else "/".join(folders[1:2])
        # A module right below the package has its test right below `tests`.
        homes = (pathlib.PurePath(test) for test in tests if test.endswith(f"/test_{name}.py"))
        if not any("/".join(home.parts[1:-1][:1]) == room for home in homes):
            found.add(path)
    return found


def test_every_large_module_has_a_test_file_of_its_name():
    """Who changes a module looks for its tests under its name: a mutant of it is to be noticed there."""
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("qdq_workbench", "widgets/qdq_widgets")
        for path in (ROOT / folder).rglob("*.py")
    }
    tests = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    assert without_tests(lengths, tests) == set(TESTED_ELSEWHERE)
    planted = {"qdq_workbench/_new.py": 151, "qdq_workbench/spec/new.py": 151, "widgets/qdq_widgets/panes/new.py": 151}
    planted["qdq_workbench/spec/small.py"] = 150
    assert without_tests(planted, ["tests/cli/test_new.py"]) == planted.keys() - {"qdq_workbench/spec/small.py"}
    there = ["tests/test_new.py", "tests/spec/test_new.py", "tests/widgets/panes/test_new.py"]
    assert without_tests(planted, there) == set()


#: Where `id(...)` is called, and what keeps the objects as long as their identities are kept.
IDENTITIES = {
    "qdq_workbench/analysis/fingerprint.py": "the bound graph holds the operations",
    "qdq_workbench/analysis/identity.py": "the values of the dictionary hold the objects",
    "qdq_workbench/analysis/sweep.py": "counted within one expression; the bound graph holds the operations",
    "qdq_workbench/calibration/batches.py": "the model holds its inputs",
    "qdq_workbench/calibration/reader.py": "_Itself holds the layer",
    "qdq_workbench/conversion/engine/deep_models.py": "the outputs hold the calls in front of them",
    "qdq_workbench/conversion/engine/float_view.py": "the bound graph, which the function holds, holds the operations",
    "qdq_workbench/conversion/engine/late_variables.py": "the values of both dictionaries hold the copies",
    "qdq_workbench/conversion/engine/own_training.py": "the bound graph of the rebuilder holds the layers",
    "qdq_workbench/conversion/engine/rebuild.py": "the bound graph of the rebuilder holds the layers",
    "qdq_workbench/onnx_graph/graph.py": "the values of the dictionaries are the nodes; sets live while none is made",
    "qdq_workbench/export/keras_side/large_variables.py": "the cut, which the caller holds, holds the variables",
    "qdq_workbench/export/recurrent.py": "the cut, which the caller holds, holds the variables",
    "qdq_workbench/export/keras_side/trace.py": "the cut, which the caller holds, holds the variables",
    "qdq_workbench/graph_builder/composites.py": "counted within one call; the arguments hold the tensors",
    "qdq_workbench/graph_builder/functional_models.py": "the model holds its operations and calls",
    "qdq_workbench/graph_builder/keras_integers.py": "the copy holds its variables, the layer those inside it",
    "qdq_workbench/graph_builder/layer_parts.py": "the layer holds its variables and parts",
    "qdq_workbench/graph_builder/reader.py": "the model holds its operations, calls and tensors",
    "qdq_workbench/graph_builder/size_steps.py": "the graph, which the trace holds, holds the captured tensors",
    "qdq_workbench/graph_builder/steps.py": "the arguments hold the tensors",
    "qdq_workbench/graph_builder/trace.py": "the tracer keeps what it visits, the layer its parts",
    "qdq_workbench/graph_builder/training_arguments.py": "the steps hold the tensors and operations",
    "qdq_workbench/placement/ask_config.py": "the layer holds its weights, `assigned` what was assigned",
    "qdq_workbench/spec/name_patterns.py": "the tree, which the matcher holds, holds its parts",
    "qdq_workbench/tfmot/trained_config.py": "the layer holds its weights",
    "qdq_workbench/wrappers/settled_scope.py": "the roster, which the scope holds, holds the layers",
    "widgets/qdq_widgets/history.py": "the values of the dictionary hold the states",
    "widgets/qdq_widgets/replacing.py": "the box holds its children while they are compared",
    "qdq_workbench/wrappers/kept_weights.py": "the object holds the wrappers",
}


def planted(path, lines):
    """Return the modules of the project, as `sources` does, with lines behind the last one of one of them."""
    return {**sources(ROOT), path: ast.parse(f"{(ROOT / path).read_text(encoding='utf-8')}\n{lines}\n")}


@functools.cache
def takes_identities(tree):
    """Return whether a module calls `id`."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(node.func, ast.Name) and node.func.id == "id" for node in calls)


def test_an_identity_is_only_taken_where_the_object_is_known_to_live_as_long():
    """An object that is made later may have the identity of one that is gone: keep the object, or compare by `is`."""
    assert {path for path, tree in sources(ROOT).items() if takes_identities(tree)} == set(IDENTITIES)
    again = planted("qdq_workbench/report/curves.py", "SEEN = {id(object()): 1}")
    found = {path for path, tree in again.items() if takes_identities(tree)}
    assert found - set(IDENTITIES) == {"qdq_workbench/report/curves.py"}


#: Ways to list layer classes.
LISTS = (
    'DENSE = {"Dense": 1, "EinsumDense": 2}',
    'DENSE = {1: "Dense", 2: "EinsumDense"}',
    "DENSE = dict(Dense=1, EinsumDense=2)",
    'DENSE = "Dense EinsumDense".split()',
    'DENSE = ["Dense", *DENSE, "EinsumDense"]',
    'DENSE = node.is_a("Dense", *DENSE, "EinsumDense")',
    "DENSE = (layers.Dense, layers.EinsumDense)",
    "DENSE = {keras.layers.Dense, keras.layers.EinsumDense}",
    "DENSE = {layers.Dense: 1, layers.EinsumDense: 2}",
    'DENSE = [layers.Dense, "EinsumDense"]',
    "found = type(layer) in (keras.layers.Dense, keras.layers.EinsumDense)",
    "found = isinstance(layer, layers.Dense | layers.Lambda | layers.EinsumDense)",
)


def test_layer_classes_are_listed_in_the_table_alone():
    """A second list of layer classes grows apart from the first: give `KINDS` a property, and read the group off it."""
    found = {path for path, tree in sources(ROOT).items() if lists_in(tree)}
    assert found == set(EXCUSED)
    again = planted("qdq_workbench/report/curves.py", LISTS[0])
    assert {path for path, tree in again.items() if lists_in(tree)} - found == {"qdq_workbench/report/curves.py"}


@pytest.mark.parametrize("line", LISTS)
def test_a_list_is_noticed_however_it_is_written(line):
    assert lists_in(ast.parse(line))[0] - {"Lambda"} == {"Dense", "EinsumDense"}
    assert lists_in(ast.parse(line.replace("EinsumDense", "einsum"))) == ()


def test_operators_are_listed_in_the_table_alone():
    """A second list of operators grows apart from the first: give `OPERATORS` a property, and read the group off it."""
    classes = {path for path, reason in EXCUSED.items() if reason != ONNX_OPERATORS}
    assert {path for path, tree in sources(ROOT).items() if operators_in(tree)} - classes == set(OPERATORS_LISTED)
    again = planted("qdq_workbench/report/curves.py", 'MOVING = ("Gather", "Slice", "Split")')
    assert operators_in(again["qdq_workbench/report/curves.py"])


def test_a_file_that_lists_operators_lists_no_classes():
    """The excuse of a file holds for what it says alone: `Multiply` is no operator of ONNX, `Mul` is."""
    operators = {schema.name for schema in onnx.defs.get_all_schemas()}
    excused = [path for path, reason in EXCUSED.items() if reason == ONNX_OPERATORS]
    names = {path: set().union(*lists_in(sources(ROOT)[path])) & KINDS.keys() for path in excused}
    assert {path: found - operators for path, found in names.items() if found - operators} == {}


def test_every_class_that_a_source_names_is_one_of_keras():
    """Of a name by which Keras only exports a class, or of one that is misspelled, no node is."""
    unknown = set()
    for path, tree in sources(ROOT).items():
        listed = [] if EXCUSED.get(path) in (ONNX_OPERATORS, TENSORFLOWS, FIRMWARES) else lists_in(tree)
        unknown |= {(path, name) for name in names_asked_for(tree).union(*listed) - CLASSES}
    # The one place that leads from the exported name to the class.
    assert unknown == {("qdq_workbench/placement/defaults.py", "GroupQueryAttention")}
    assert names_asked_for(ast.parse('node.is_a("Dense", "Dens") or name == "MaxPool2D"')) - CLASSES == {
        "Dens",
        "MaxPool2D",
    }


#: What the compatibility faces import beside public names, by module, and why no public name does it.
INTERNALS = {
    "mct": {
        "_warned_line": ("warn_caller", "warnings name the user's line, behind copies by `dataclasses` too"),
        "calibration.observers.power_of_two": ("rounded_up", "MCT's functions on arrays compute what `calibrate` does"),
        "placement.decision": ("Decision", "a `QuantizationConfig` changes decisions: author and reason stay"),
        "placement.planner": ("make_plan", "the plan of changed decisions"),
        "placement.settings": ("EVERY_WEIGHT", "the settings of decisions"),
        "post_training.codebook": ("clustered", "MCT's functions on arrays compute what `codebook_weights` does"),
        "post_training.shift_negative": ("Inserted shifted", "MCT places pairs by what `shift_negative` has inserted"),
    },
    "tfmot": {
        "_warned_line": ("warn_caller", "warnings name the user's line, behind the calls of a Rebuilder"),
        "conversion.engine.quantize_model": ("quantize_named", "composite layers stay whole, and names have a prefix"),
        "conversion.engine.rebuild": (
            "Rebuilder clone_operation keras_name unique_names",
            "models are built again with marks on their layers, and without",
        ),
        "conversion.engine.retarget": ("replan", "fixed ranges change the plan of a calibrated model"),
        "conversion.files.keras2_files": ("Keras2File build_keras2 read_keras2", "what TFMOT trained, Keras 2 saved"),
        "graph.op_kinds": ("BEFORE_ACTIVATION", "TFMOT's scheme goes by activations"),
        "graph_builder": ("BoundGraph Call bind_graph takes_training", "what a Rebuilder walks through"),
        "placement.defaults": ("find_default", "the scheme quantizes the weights that the table of kinds names"),
        "placement.planner": ("FLOAT override_tensors", "fixed ranges change the plan of a calibrated model"),
        "spec.quantization_spec": (
            "config_from_dict config_to_dict",
            "a mark is saved with its config, as an entry is",
        ),
    },
}


def internals(trees, face):
    """Return what a face imports of the library, outside of itself, that is no public name."""
    home = f"qdq_workbench.{face}"
    found = set()
    for path in (path for path in trees if path.startswith(f"qdq_workbench/{face}/")):
        for node in ast.walk(trees[path]):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
            else:
                continue
            found |= {name for name in names if not f"{name}.".startswith(f"{home}.") and not is_public(name)}
    return {name.removeprefix("qdq_workbench.") for name in found}


def is_public(name):
    """Return whether a dotted name is one of another library, a public one, or an error."""
    package, _, inside = name.partition(".")
    module, _, last = inside.rpartition(".")
    if package != "qdq_workbench":
        return bool(package)  # an import by dots begins with none
    if module == "errors":
        return inspect.isclass(getattr(errors, last, None))
    at_root = {"", *qdq._HOMES, *qdq._MODULES, *MODULES}
    return last in (MODULES.get(module, ()) if module else at_root)


@pytest.mark.parametrize("face", INTERNALS)
def test_the_faces_import_public_names_but_for_a_few(face):
    """Who leaves MCT or TFMOT behind shall find what a face does under public names: import those, from the root."""
    known = {f"{module}.{name}" for module, (names, _) in INTERNALS[face].items() for name in names.split()}
    assert internals(sources(ROOT), face) == known
    lines = (
        "from qdq_workbench import calibrate, planning",
        "from qdq_workbench.errors import SpecError, first_line",
        "import qdq_workbench.wrappers.base",
        "from ..wrappers import qdq",
    )
    new = {"planning", "errors.first_line", "wrappers.base", "..wrappers.qdq"}
    assert internals(planted(f"qdq_workbench/{face}/__init__.py", "\n".join(lines)), face) - known == new


#: Classes of the front end that others of it may extend.
EXTENDED = {"BenchError", "Pane"}


def extensions(trees):
    """Return the classes of the front end that extend another class of it, with the class that they extend."""
    bases = {}
    for path in (path for path in trees if path.startswith("widgets/")):
        for node in ast.walk(trees[path]):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return {(name, base) for name, found in bases.items() for base in found & bases.keys()}


def test_the_bench_has_its_parts_and_inherits_from_none():
    """A base class whose attributes only the leaf sets cannot be read alone: give `Workbench` a part, see `of_part`."""
    found = extensions(sources(ROOT))
    assert {base for _, base in found} == EXTENDED
    assert not {name for name, _ in found} & EXTENDED  # one level
    assert "Workbench" not in {name for name, _ in found}
    again = planted("widgets/qdq_widgets/plans.py", "class Walk(Plans):\n    steps: list[str]")
    assert extensions(again) - found == {("Walk", "Plans")}


def import_graph(trees):
    """Return, by module, the modules that it imports, in functions too; what only type checkers import is left out."""
    named = {path: path.removeprefix("widgets/").removesuffix(".py").replace("/", ".") for path in trees}
    modules = {named[path].removesuffix(".__init__"): tree for path, tree in trees.items()}
    graph = {}
    for name, tree in modules.items():
        # `from package import name` imports a submodule, or what the package holds.
        found = {whole if whole in modules else module for module, whole in imports_in(tree)}
        graph[name] = (found & modules.keys()) - {name}
    return graph


@functools.cache
def imports_in(tree):
    """Return what a module imports: pairs of a module and of what is imported from it, with a dot between them."""
    found, places = set(), [tree]
    while places:
        node = places.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.module, f"{node.module}.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, alias.name) for alias in node.names}
        places += ast.iter_child_nodes(node)
    return found


def circle(trees):
    """Return the modules of a circle of imports, in order; nothing where there is none."""
    try:
        graphlib.TopologicalSorter(import_graph(trees)).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_imports_go_in_no_circle():
    assert circle(sources(ROOT)) == []
    line = "def later():\n    from qdq_workbench.placement.plan import PlacementPlan"
    again = planted("qdq_workbench/placement/tables.py", line)
    assert {"qdq_workbench.placement.plan", "qdq_workbench.placement.tables"} <= set(circle(again))


#: Where an index of the nodes of an ONNX graph is made beside `QDQGraph`, and why.
INDEXES = {
    "qdq_workbench/export/keras_side/stable_order.py": "the places of nodes in one graph or body, which it then sorts",
    "qdq_workbench/onnx_graph/qdq_graph.py": "the index itself",
    "qdq_workbench/profiling/kernels.py": "the places of nodes in the order of the file, as the runtime counts them",
    "qdq_workbench/profiling/openvino_runner.py": "the places of nodes in the order of the file",
    "qdq_workbench/profiling/runtime_graph.py": "the places of nodes in the order of the file",
}


@functools.cache
def makes_indexes(tree):
    """Return whether a module makes a dictionary of the nodes that write or read a tensor."""
    return any(_is_index(node) for node in ast.walk(tree))


def _is_index(node):
    if isinstance(node, ast.DictComp):
        targets = {name for each in node.generators for name in _names(each.target)}
        return any(_ends_of(each.iter) in targets for each in node.generators)
    if isinstance(node, ast.For):
        loops = [inner for inner in ast.walk(node) if isinstance(inner, ast.For) and inner is not node]
        calls = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        collects = any(isinstance(call, ast.Attribute) and call.attr == "setdefault" for call in calls)
        sets = [call for inner in loops for call in ast.walk(inner.iter)]
        return collects and any(_ends_of(each) in set(_names(node.target)) for each in sets)
    return False


def _names(target):
    return [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]


def _ends_of(node):
    """Return the name before `.input` or `.output`; None for anything else."""
    is_end = isinstance(node, ast.Attribute) and node.attr in ("input", "output") and isinstance(node.value, ast.Name)
    return node.value.id if is_end else None


def test_an_onnx_graph_has_one_index():
    """Indexes apart from `QDQGraph` differ from it in the small: inner graphs, empty names, a node that reads twice."""
    assert {path for path, tree in sources(ROOT).items() if makes_indexes(tree)} == set(INDEXES)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("producers = {tensor: node for node in proto.graph.node for tensor in node.output}", True),
        ("for node in nodes:\n  for name in set(node.input):\n    readers.setdefault(name, []).append(node)", True),
        ("outputs = {value.name: value for value in graph.output}", False),
        ("written = {tensor for node in nodes for tensor in node.output}", False),
    ],
)
def test_an_index_is_noticed_however_it_is_made(lines, found):
    assert makes_indexes(ast.parse(lines)) is found
