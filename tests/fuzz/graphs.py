"""A hypothesis strategy for random Keras models, each drawn as the Python code that builds it.

A failure therefore prints as a program of a few lines, which can be pasted into a test.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from typing import Any

import hypothesis
import keras
import numpy as np
from fuzz import steps
from hypothesis import strategies as st

IMPORTS = "import keras\nimport numpy as np\nfrom fuzz.own import Own\nfrom keras import layers, ops\n"
GAINS = (-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 0.0)
SIZES = (1.0, 1.0, 1.0, 1.0, 0.0, 30.0, 1000.0)  # of the biases of a layer
FACTORS = (0.0, 1.0, 1.0, 1.0, 1e-12, 1e-33)  # of the channels of a weight
DATA = ("normal",) * 8 + ("zero", "constant")
HARD_SIZES = (*SIZES, 5e4)
HARD_FACTORS = (*FACTORS, 1e-40)  # denormals
HARD_DATA = (*DATA, "dead channel", "constant channel", "outlier", "tiny", "huge")
POLICIES = ("float32", "float32", "float32", "float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class Program:
    """A model as code.

    Args:
        code: Python that leaves the model in `model`.
        seed: Seed of its weights and data.
        hard: Whether weights and data are drawn from the ends of what float32 holds, too.
    """

    code: str
    seed: int
    hard: bool = False

    def build(self):
        """Run the code and return the model, with weights that do something."""
        keras.utils.set_random_seed(self.seed)
        namespace: dict[str, Any] = {}
        with float32_again():
            exec(IMPORTS + self.code, namespace)
        return shake(namespace["model"], self.seed, hard=self.hard)

    @contextlib.contextmanager
    def under_its_policy(self):
        """Keep the dtype policy that the code sets, as a user's script does, while the model is worked on."""
        with float32_again():
            exec("\n".join(line for line in self.code.splitlines() if "set_dtype_policy(" in line), {"keras": keras})
            yield

    def __repr__(self):
        return f"Program(seed={self.seed}, hard={self.hard}, code='''\n{self.code}''')"


@st.composite
def programs(draw, min_steps=1, max_steps=12, *, hard=False):
    """Draw a functional model: branches, merges, shared and nested parts, operations, several inputs and outputs."""
    writer = Writer(draw, hard=hard)
    policy = writer.pick(POLICIES)
    with float32_again():
        if policy != "float32":
            writer.run(f"keras.config.set_dtype_policy({policy!r})")
        for _ in range(draw(st.integers(1, 3))):
            writer.add_input()
        for _ in range(draw(st.integers(min_steps, max_steps))):
            steps.add_step(writer)
        writer.finish()
    return Program("\n".join(writer.lines) + "\n", draw(st.integers(0, 9999 if hard else 99)), hard)


class Writer:
    """Writes a model line by line and runs every line at once, so that shapes are Keras's own.

    Args:
        draw: Hypothesis's `draw`.
        parent: The writer of the model that this one is nested in; it shares the namespace and the counter.
        hard: Whether axes of one element and convolutions behind inserted axes are drawn.
    """

    def __init__(self, draw, parent=None, *, hard=False):
        self._draw = draw
        self.hard = hard if parent is None else parent.hard
        self.depth = 0 if parent is None else parent.depth + 1
        self.lines = []
        self.namespace = {} if parent is None else parent.namespace
        self.counter = [0] if parent is None else parent.counter
        self.tensors: dict[str, Any] = {}
        self.inputs: list[str] = []
        self.callables: list[tuple[str, str]] = []
        if parent is None:
            exec(IMPORTS, self.namespace)

    def pick(self, choices):
        """Draw one of several values, the first when shrinking."""
        return self._draw(st.sampled_from(list(choices)))

    def flag(self):
        """Draw a boolean."""
        return self._draw(st.booleans())

    def number(self, low, high):
        """Draw an integer."""
        return self._draw(st.integers(low, high))

    def fresh(self, prefix="t"):
        """Return a name that no line has used."""
        self.counter[0] += 1
        return f"{prefix}{self.counter[0]}"

    def choose(self, accepts=lambda tensor: True):
        """Draw a tensor that fits, the latest when shrinking; None where there is none."""
        fitting = [name for name, tensor in self.tensors.items() if accepts(tensor)]
        return self.pick(fitting[::-1]) if fitting else None

    def run(self, line):
        """Write a line; False, and nothing written, where Keras refuses it."""
        try:
            with _own_random_state():
                exec(line, self.namespace)
        except Exception:  # noqa: BLE001 - Keras refuses in many ways
            return False
        self.lines.append(line)
        return True

    def compute(self, expression):
        """Write `name = expression` and take its tensor or tensors into the pool; None where Keras refuses it."""
        name = self.fresh()
        if not self.run(f"{name} = {expression}"):
            return None
        value = self.namespace[name]
        if isinstance(value, (list, tuple)):
            self.tensors.update({f"{name}[{index}]": tensor for index, tensor in enumerate(value)})
        else:
            self.tensors[name] = value
        return name

    def add_input(self, like=None):
        """Write an input; `like` gives the tensor that a nested model will be called with."""
        name = self.fresh("x")
        if like is not None:
            shape, dtype = tuple(like.shape[1:]), like.dtype
        else:
            shape, dtype = self._input_shape()
        self.run(f"{name} = keras.Input({shape}, name={name!r}, dtype={dtype!r})")
        self.tensors[name] = self.namespace[name]
        self.inputs.append(name)

    def _input_shape(self):
        size = self.pick([6, 5, 8, None, 1] if self.hard else [6, 5, 8, None])
        channels = self.number(1, 4)
        kind = self.pick(["image", "image", "vector", "sequence", "volume", "words", "image first"])
        if kind == "image" and size is None and self.flag():
            return (None, None, channels), "float32"
        shapes = {
            "image": (size or 7, size or 7, channels),
            "image first": (channels, size or 7, size or 7),
            "vector": (channels,),
            "sequence": (size, channels),
            "volume": (4, 4, 4, channels),
            "words": (size or 5,),
        }
        return shapes[kind], "int32" if kind == "words" else "float32"

    def finish(self, name="model", outputs=None):
        """Write the model: one to three outputs, as a tensor, a list or a dictionary."""
        outputs = self._outputs() if outputs is None else outputs
        chosen = self._container(outputs, "y")
        reached = self._reached(outputs)
        inputs = [name for name in self.inputs if name in reached] or self.inputs[:1]
        for unread in inputs:  # an output itself; Keras before 3.14 refuses an input without a reader
            if not self.namespace[unread]._keras_history.operation._outbound_nodes:
                self.run(f"layers.Identity(name={self.fresh('reader')!r})({unread})")
        given = self._container(inputs, "")
        self.inputs = inputs
        kind = self.pick(["keras.Model", "keras.Model", "keras.Model", "Own"])
        made = self.run(f"{name} = {kind}({given}, {chosen}, name={name!r})")
        # Keras finds a cycle where a nested model that returns its input is called on what it takes for one sample.
        hypothesis.assume(made or not any(tensor.shape[:1] == (1,) for tensor in self.tensors.values()))
        assert made, self.lines

    def _outputs(self):
        used = self._read_tensors()
        last = [name for name in self.tensors if name not in used and name not in self.inputs]
        outputs = last[-1:] or list(self.tensors)[-1:]
        while len(outputs) < 3 and self.flag():
            outputs = [*outputs, self.choose()]
        return outputs

    def _read_tensors(self):
        """Names of the tensors that some other tensor of the pool is computed from."""
        return {name for name in self.tensors if any(f"({name}" in line or f" {name}" in line for line in self.lines)}

    def _reached(self, outputs):
        """Names of the inputs that the outputs depend on."""
        found, queue, seen = set(), [self._value(name) for name in outputs], set()
        names = {id(self.namespace[name]): name for name in self.inputs}
        while queue:
            tensor = queue.pop()
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if id(tensor) in names:
                found.add(names[id(tensor)])
                continue
            history = tensor._keras_history
            queue.extend(history.operation._inbound_nodes[history.node_index].input_tensors)
        return found

    def _value(self, name):
        return eval(name, self.namespace)  # noqa: S307 - a name that this writer made

    def _container(self, names, prefix):
        if len(names) == 1 and self.pick([True, True, True, False]):
            return names[0]
        if self.depth == 0 and self.flag():
            order = list(enumerate(names))[:: self.pick([1, -1])]
            return "{" + ", ".join(f"{(prefix + str(i)) if prefix else name!r}: {name}" for i, name in order) + "}"
        return "[" + ", ".join(names) + "]"


@contextlib.contextmanager
def float32_again():
    """Programs set the precision of the layers behind."""
    try:
        yield
    finally:
        keras.config.set_dtype_policy("float32")


@contextlib.contextmanager
def _own_random_state():
    """Keras draws seeds from Python's generator, which is hypothesis's to watch."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def shake(model, seed, *, hard=False):
    """Give normalisations statistics as training would, biases and gains values; some gains are negative, some 0.

    Trained, pruned and weight-decayed networks have dead channels too, with biases of any size.
    """
    generator = np.random.default_rng(seed)
    sizes, factors = (HARD_SIZES, HARD_FACTORS) if hard else (SIZES, FACTORS)
    for layer in model._flatten_layers():
        for variable in layer._trainable_variables + layer._non_trainable_variables:
            name = variable.path.rsplit("/", 1)[-1]
            if name == "gamma":
                variable.assign(generator.uniform(0.5, 1.5, variable.shape) * generator.choice(GAINS, variable.shape))
            elif "variance" in name:
                variable.assign(generator.uniform(0.5, 2.0, variable.shape))
            elif name in ("beta", "bias", "moving_mean", "alpha"):
                variable.assign(generator.normal(0, 0.2 * generator.choice(sizes), variable.shape))
            elif name.endswith("kernel") and generator.random() < 0.4:
                variable.assign(variable * _dead_channels(generator, variable.shape, factors))
    return model


def _dead_channels(generator, shape, choices):
    """Return factors that make slices along one axis zero or next to it, or all of a weight."""
    axis = generator.choice([-1, -1, -2]) if len(shape) > 1 else -1
    factors = generator.choice(choices if generator.random() < 0.8 else choices[:1], shape[axis])
    return factors.reshape([-1 if index == axis % len(shape) else 1 for index in range(len(shape))])


def data_of(model, seed, count=13, *, hard=False):
    """Return random data for a model in the structure it takes; open sizes become 9, words stay below 10.

    There are more samples than anything else has elements: Keras (3.15) adds a tensor of one column as a bias, along
    the last axis, where that has as many elements as there are samples. Some inputs are 0, or the same, everywhere.
    Hard ones also have such channels, or one large value, or are as small or as large as 1e-30 and 1e30.
    """
    generator = np.random.default_rng(seed)

    def array(tensor):
        shape = (count, *(9 if size is None else size for size in tensor.shape[1:]))
        if "int" in tensor.dtype:
            return generator.integers(0, 10, shape).astype(tensor.dtype)
        kind = generator.choice(HARD_DATA if hard else DATA)
        if kind in ("zero", "constant"):
            return np.full(shape, 0.7 * (kind == "constant")).astype(tensor.dtype)
        values = generator.normal(size=shape)
        if kind == "outlier":
            values.reshape(-1)[generator.integers(values.size)] = 1e4
        if kind.endswith(" channel"):
            values[..., generator.integers(shape[-1])] = 0.7 * (kind == "constant channel")
        values *= {"tiny": 1e-30, "huge": 1e30 if tensor.dtype == "float32" else 1e3}.get(kind, 1.0)
        return values.astype(tensor.dtype)

    return keras.tree.map_structure(array, model._inputs_struct)


def resized(model, data, count, size):
    """Return other samples of the same values for a model, with another size for each open one."""
    generator = np.random.default_rng(count)

    def array(tensor, values):
        shape = (count, *(size if known is None else known for known in tensor.shape[1:]))
        return generator.permutation(np.resize(values, shape).reshape(-1)).reshape(shape)

    return keras.tree.map_structure(array, model._inputs_struct, data)


def break_one(model, seed):
    """Put a NaN or an infinity into one weight of a model; return its path, None where there is no weight."""
    generator = np.random.default_rng(seed)
    weights = [variable for variable in model.variables if "float" in variable.dtype and np.prod(variable.shape) > 0]
    if not weights:
        return None
    variable = weights[generator.integers(len(weights))]
    values = np.array(variable)
    values.reshape(-1)[generator.integers(values.size)] = generator.choice([np.nan, np.inf, -np.inf])
    variable.assign(values)
    return variable.path
