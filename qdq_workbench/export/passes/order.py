"""The passes in the order in which an export runs them.

`python -m qdq_workbench.export.show_passes` prints the list, or for a given model file the changes of each pass.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterable, Iterator

from qdq_workbench.export.passes import (
    carry_into_loops,
    correct_resizes,
    drop_identities,
    drop_products_with_one,
    fix_reshape_sizes,
    fold_bias_additions,
    fold_pads,
    join_hard_sigmoids,
    keep_biases_of_sequences_apart,
    keep_clips_from_blocks,
    keep_means_in_float,
    keep_pairs_apart,
    keep_weights_in_float,
    move_to_channels_first,
    quantize_biases,
    restore_batched_matmul,
    restore_clips,
    restore_convolution_settings,
    restore_gelus,
    restore_gemm,
    restore_global_average_pools,
    restore_layer_normalizations,
    restore_matmul_rank,
    restore_nearest_resize,
    restore_one_dimensional,
    restore_rms_normalizations,
    simplify_reshapes,
    to_half,
)
from qdq_workbench.export.passes.contract import GraphPass
from qdq_workbench.onnx_graph.graph import Graph, Node


@dataclasses.dataclass(frozen=True)
class Stage:
    """Passes that run one after the other on a graph in one state.

    Args:
        name: Name of the stage.
        state: The state of the graph before it.
        passes: The passes in order.
    """

    name: str
    state: str
    passes: tuple[GraphPass, ...]


OPENED = Stage("opened", "as tf2onnx wrote it, cut at every pair", (drop_identities.PASS,))
FLOAT = Stage(
    "float",
    "cut at every pair, recurrent layers written",
    (
        # First, since `restore_matmul_rank` reads the sizes of Reshapes.
        fix_reshape_sizes.PASS,
        drop_products_with_one.PASS,
        restore_convolution_settings.PASS,
        correct_resizes.PASS,
        restore_one_dimensional.PASS,
        restore_matmul_rank.PASS,
        restore_nearest_resize.PASS,
        restore_batched_matmul.PASS,
        restore_clips.PASS,
        restore_layer_normalizations.PASS,
        restore_rms_normalizations.PASS,
        restore_gelus.PASS,
    ),
)
# An Identity between two graph outputs may be moved away from them.
_CHANNELS_FIRST = (move_to_channels_first.PASS, drop_identities.PASS)
JOINED = Stage(
    "joined",
    "joined by Q/DQ pairs, weights as integers",
    (
        drop_identities.PASS,
        # Nothing moves over a Reshape, so those that do nothing must be gone by then: an upsampling by 1 leaves one.
        simplify_reshapes.PASS,
        # Biases of channels-first layers: a Transpose of their readers must not come between. Others follow below.
        fold_bias_additions.PASS,
        # Before the rest: constants per channel, means and paddings are found along the axes of channels-first tensors.
        *_CHANNELS_FIRST,
        simplify_reshapes.PASS,
        fold_bias_additions.PASS,
        restore_gemm.PASS,
        keep_biases_of_sequences_apart.PASS,
        restore_global_average_pools.PASS,
        # Again: a pool between pairs brings Transposes, which part its pair from a pool behind it.
        *_CHANNELS_FIRST,
        keep_means_in_float.PASS,
        fold_pads.PASS,
        # Again: `restore_global_average_pools` leaves a Squeeze in front of a Reshape.
        simplify_reshapes.PASS,
        # Last: the passes before it decide which movements stay in front of a loop.
        carry_into_loops.PASS,
    ),
)
INT32_BIASES = Stage(
    "int32 biases", "in its final float form, for targets that want integer biases", (quantize_biases.PASS,)
)
BLOCKS = Stage(
    "blocks",
    "in its final form, for targets where a ReLU hides weights in blocks",
    (keep_clips_from_blocks.PASS,),
)
HARD_SIGMOIDS = Stage(
    "hard sigmoids", "in its final form, for runtimes with a kernel for HardSigmoid", (join_hard_sigmoids.PASS,)
)
HALF = Stage("half", "finished, in float32, for files in half precision", (to_half.PASS,))
FLOAT_WEIGHTS = Stage(
    "float weights",
    "finished, for runtimes that quantize float weights themselves",
    (keep_weights_in_float.PASS,),
)
PAIRS = Stage("pairs", "finished, for runtimes that merge pairs in a row", (keep_pairs_apart.PASS,))
STAGES = (OPENED, FLOAT, JOINED, INT32_BIASES, BLOCKS, HARD_SIGMOIDS, HALF, FLOAT_WEIGHTS, PAIRS)


def unfinished(graph: Graph, last: Iterable[Stage]) -> list[tuple[GraphPass, Node]]:
    """Return the nodes of a finished graph that violate the postcondition of a pass, each with that pass.

    The graph has shapes and its target's `slow_transposes`; `last` are the stages after `JOINED` for its target.
    """
    passes = dict.fromkeys(graph_pass for stage in (FLOAT, JOINED, *last) for graph_pass in stage.passes)
    return [(graph_pass, node) for graph_pass in passes for node in graph_pass.denied_by(graph)]


Observer = Callable[[Stage, GraphPass, Graph], contextlib.AbstractContextManager[None]]
_observer: contextvars.ContextVar[Observer | None] = contextvars.ContextVar("observer", default=None)


def run_stage(graph: Graph, stage: Stage) -> None:
    """Run the passes of a stage on a graph."""
    observer = _observer.get()
    for graph_pass in stage.passes:
        with contextlib.nullcontext() if observer is None else observer(stage, graph_pass, graph):
            graph_pass.run(graph)
    graph.prune()


@contextlib.contextmanager
def passes_observed(observer: Observer) -> Iterator[None]:
    """Run every pass inside the `with` block in the context manager that the observer returns for it."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)
