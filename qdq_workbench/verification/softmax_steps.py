"""How far the outputs move because ONNX Runtime's softmax of integers returns some integers one step too low.

Its kernel multiplies with the largest integer below 1/scale of the result (`qlinear_softmax.cc`, 1.32). So a
probability p loses less than p steps: the integer is that of ONNX's definition or, if 1/scale is none, often the one
below. How many depends on the scale alone and is no rare tie, and all move in one direction, so that their sum does not
average out. Therefore they are not counted, but measured place by place, and the Keras model is given exactly them.

The kernel is measured in parts that start from the plain run's integers (`alone`). All pairs are outputs of these: if
some were, ONNX Runtime would make uint8 of the others and form no kernel between two types.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.onnx_graph.batches import all_batches
from qdq_workbench.onnx_graph.qdq_graph import QUANTIZE, QDQGraph
from qdq_workbench.onnx_graph.sessions import make_session, run_once, with_outputs
from qdq_workbench.verification.differences import mean_of_numbers
from qdq_workbench.verification.keras_layout import fitting_layouts, zero_paddings
from qdq_workbench.verification.moved_inputs import BehindTensors
from qdq_workbench.verification.parts import Arrays, cut_behind, run_parts


def moved_by_softmax(proto: onnx.ModelProto, q_model: QuantizedModel, inputs: Arrays) -> list[float]:
    """Return by output, in the order of the model, the mean difference that the kernels of softmax cause."""
    moved = np.zeros(len(q_model.outputs))
    graph, pads = QDQGraph(proto), zero_paddings(q_model.plan.graph)
    tensors = {pair.name: pair.tensor for pair in q_model.plan.tensors}
    for node, plain, steps in _steps(proto, graph, inputs):
        tensor, grid = tensors[node.name.removesuffix(f"/{QUANTIZE}")], graph.parameters(node)
        behind = BehindTensors(q_model, list(inputs.values()), [tensor])
        if grid is None or not behind.names:
            continue
        scale, zero = grid
        values = behind.values[0]
        layouts = [
            fitting_layouts(part, values.shape, pads.get(tensor), 0.0) for part in ((plain - zero) * scale, steps)
        ]
        if not layouts[0]:
            continue
        # Of several layouts that fit, the one in which the file's values are the model's.
        _, moves = min(zip(*layouts, strict=True), key=lambda pair: float(np.abs(pair[0] - values).mean()))
        changed = behind.outputs([(values + scale * moves).astype(values.dtype)])
        pairs = zip(changed, behind.outputs([values]), strict=True)
        moved += [mean_of_numbers(ours, theirs) for ours, theirs in pairs]
    return moved.tolist()


def _steps(
    proto: onnx.ModelProto, graph: QDQGraph, inputs: Mapping[str, np.ndarray]
) -> list[tuple[onnx.NodeProto, np.ndarray, np.ndarray]]:
    """Return each QuantizeLinear behind a softmax whose kernel differs, its plain integers, and -1, 0 or 1 by place."""
    quantizing = [node for node in graph.nodes if node.op_type == QUANTIZE]
    behind = [node for node in quantizing if _is_softmax(graph.producer(graph.origin(node.input[0])))]
    if not behind:
        return []
    names = [node.output[0] for node in quantizing]
    exposed = with_outputs(proto, names)
    session, kernels, runs = make_session(exposed, optimized=False), None, []
    for batch in all_batches(proto, inputs):
        plain = dict(zip(names, run_once(session, names, batch), strict=True))
        if kernels is None:
            kernels = make_session(cut_behind(exposed, plain), optimized=True, as_planned=True)
        runs.append((plain, run_parts(kernels, names, batch, plain)))
    steps = []
    for node in behind:
        codes, found = (
            np.concatenate([run[which][node.output[0]].astype(np.int64) for run in runs]) for which in (0, 1)
        )
        # More than a step is not what this kernel does.
        steps.append((node, codes, np.where(np.abs(found - codes) == 1, found - codes, 0)))
    return [each for each in steps if each[2].any()]


def _is_softmax(node: onnx.NodeProto | None) -> bool:
    return node is not None and node.op_type == "Softmax"
