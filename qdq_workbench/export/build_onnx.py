"""A cut float model and its encodings -> a clean QDQ ONNX model.

trace and convert the float graph         keras_side/float_graph.py
drop Identity nodes                       passes/, the stage "opened"
write the recurrent layers                recurrent.py
restore operators that were decomposed    passes/, the stage "float"
insert the pairs, write integer weights   insert_qdq.py
channels-first, Gemm, pools, pads         passes/, the stage "joined"
int32 biases, if the target has them      passes/, the stage "int32 biases"
ReLUs after weights in blocks             passes/, the stage "blocks"
half precision, if requested              passes/, the stage "half"
float weights, pairs in a row             passes/, the stages "float weights" and "pairs"
names, types, checker                     finish.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from qdq_workbench._interrupts import interrupts_held, safe_point
from qdq_workbench._numbers import whole
from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.finish import final_names, finish, settle_names
from qdq_workbench.export.insert_qdq import QDQWriter
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.float_graph import MIN_OPSET, FloatGraph, convert_float
from qdq_workbench.export.left_out import check_written, needed_ends
from qdq_workbench.export.passes.order import FLOAT, HALF, JOINED, OPENED, run_stage
from qdq_workbench.export.planned_joins import PlannedJoins
from qdq_workbench.export.recurrent import insert_recurrent
from qdq_workbench.export.target_stages import stages_for
from qdq_workbench.graph.half_precision import LEAST_HALF_OPSET, HalfRequest
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.placement.opsets import WIDE_INTEGER_OPSET, is_packed, least_opset
from qdq_workbench.placement.targets import Target

# The newest opset that ONNX Runtime 1.31 supports officially; an older onnx package may know fewer.
MAX_OPSET = min(26, onnx.defs.onnx_opset_version())


@interrupts_held()
def build_onnx(
    cut: CutModel,
    activations: Mapping[str, Encoding],
    weights: Mapping[str, Encoding],
    *,
    target: Target,
    opset: int | None = None,
    dynamic_batch: bool = True,
    half: HalfRequest | None = None,
    convert: Callable[..., FloatGraph] | None = None,
) -> onnx.ModelProto:
    """Build the QDQ ONNX model of a cut model, with exactly one encoding for each of its pairs and weights.

    The result passes `onnx.checker`, and has the inputs and outputs of `cut` by name and order, and all its pairs and
    weights that an output depends on. `opset` is None for 17, or a newer one where 16-bit integers, blocks or half
    precision need it. Without `dynamic_batch` the batch size is 1. `half` is None for float32; its fields `half` and
    `kept` are set. `convert` is None for `convert_float`, or keeps what that returned.
    """
    cut.check()
    _check_encodings(cut, activations, weights)
    chosen = choose_opset(opset, [*activations.values(), *weights.values()], half)
    float_graph = (convert or convert_float)(cut, opset=chosen, dynamic_batch=dynamic_batch)
    safe_point()
    graph = Graph(float_graph.model)
    graph.slow_transposes = target.slow_transposes
    if cut.lowered is not None:
        # The final names, because the rule finds the layer of a node by its name in the file.
        graph.may_join = PlannedJoins(*cut.lowered, final_names(float_graph))
    run_stage(graph, OPENED)
    insert_recurrent(graph, cut, float_graph.ends)
    # Between these two stages the recurrent layers connect their ends, and the pairs are still cut. The large float
    # variables are among the ends as well, but become plain constants.
    needed = needed_ends(graph, float_graph.ends) - set(cut.constants)
    run_stage(graph, FLOAT)
    _insert(graph, float_graph, activations, weights, cut.constants)
    safe_point()
    run_stage(graph, JOINED)
    for stage in stages_for(target, half=half is not None):
        if stage is HALF:
            graph.prune()
            settle_names(graph, float_graph)  # `half.why_kept` takes the names of the file
            graph.half = half
        run_stage(graph, stage)
    packed = four_bit_weights(weights, chosen)
    proto = finish(graph, float_graph, dynamic_batch=dynamic_batch, four_bits=packed)
    check_written(proto, needed)
    return proto


def four_bit_weights(weights: Mapping[str, Encoding], opset: int) -> list[str]:
    """Return the weights whose integers are written as INT4 or UINT4, which ONNX has from opset 21 on."""
    return [name for name, encoding in weights.items() if is_packed(encoding.spec, opset)]


def choose_opset(opset: int | None, encodings: list[Encoding], half: HalfRequest | None = None) -> int:
    """Return the opset to write: the given one if the encodings allow it, the default for None.

    Raises:
        ExportError: If the opset is not supported, or too old for 16-bit integers, blocks or scales in half precision.
    """
    # DequantizeLinear has int16, uint16, 4-bit types and blocks from opset 21 on; 4 bits fit into int8 below it.
    wide = any(encoding.dtype.itemsize > 1 for encoding in encodings)
    blocks = any(encoding.spec.block_size is not None for encoding in encodings)
    if opset is None:
        return max(least_opset(encoding.spec for encoding in encodings), 0 if half is None else half.kind.opset)
    opset = whole(opset)
    if isinstance(opset, bool) or not isinstance(opset, int) or not MIN_OPSET <= opset <= MAX_OPSET:
        raise ExportError(f"Supported opsets are {MIN_OPSET} to {MAX_OPSET}. Received: opset={opset!r}")
    if wide and opset < WIDE_INTEGER_OPSET:
        raise ExportError(
            f"Quantizers of more than 8 bits need 16-bit QuantizeLinear, which exists from opset {WIDE_INTEGER_OPSET} "
            f"on; leave opset out or raise it. Received: opset={opset}"
        )
    if blocks and opset < WIDE_INTEGER_OPSET:
        raise ExportError(
            f"DequantizeLinear knows blocks from opset {WIDE_INTEGER_OPSET} on; leave opset out or raise it. "
            f"Received: opset={opset}"
        )
    if half is not None and opset < LEAST_HALF_OPSET:
        raise ExportError(
            f"QuantizeLinear and DequantizeLinear take {half.kind.name} scales from opset {LEAST_HALF_OPSET} on; leave "
            f"opset out or raise it. Received: opset={opset}, float_type={half.kind.name!r}"
        )
    return opset


def _check_encodings(cut: CutModel, activations: Mapping[str, Encoding], weights: Mapping[str, Encoding]) -> None:
    for kind, cuts, encodings in (("pair", cut.pairs, activations), ("weight", cut.weights, weights)):
        missing, unknown = sorted(set(cuts) - set(encodings)), sorted(set(encodings) - set(cuts))
        if missing or unknown:
            raise ExportError(
                f"Every {kind} of the cut model needs exactly one encoding. "
                f"Received: without encoding={missing}, unknown={unknown}"
            )
    for name, encoding in activations.items():
        if encoding.spec.axis is not None:
            raise ExportError(
                f"Activations are quantized per tensor. Received: pair={name!r}, axis={encoding.spec.axis}"
            )


def _insert(
    graph: Graph,
    names: FloatGraph,
    activations: Mapping[str, Encoding],
    weights: Mapping[str, Encoding],
    constants: Mapping[str, Any],
) -> None:
    writer = QDQWriter(graph)
    for name, source in names.ends.weights.items():
        if name in constants:
            graph.replace_reads(source, graph.add_constant(name, np.asarray(constants[name])))
            del graph.inputs[source]
        else:
            writer.write_weight(name, weights[name], source)
    for name, source in names.ends.sources.items():
        writer.join_pair(name, activations[name], source, names.ends.placeholders[name])
        del graph.outputs[source]
    graph.prune()
