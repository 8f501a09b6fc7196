"""Rewriting the joined graph into the forms that inference runtimes recognise.

Conv(x, w) + c                     ->  Conv(x, w, b = c)                c constant per channel
MatMul(x, w) + c, x of rank 2      ->  Gemm(x, w, c)
MatMul(x, w) + c, x of higher rank ->  the same with c of shape (1, N)  x and w dequantized
ReduceMean over all spatial axes   ->  GlobalAveragePool [-> Squeeze]
Pad(0) -> [Q -> DQ ->] Conv        ->  [Q -> DQ ->] Conv with pads      exact, since 0 is on every grid
Pad(0) of values >= 0 -> MaxPool   ->  MaxPool with pads
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdq_workbench.export.flips import constant_axes
from qdq_workbench.export.graph import Graph, Node
from qdq_workbench.export.layout import move_to_channels_first
from qdq_workbench.export.transposes import permutation
from qdq_workbench.graph.never_negative import keeps_never_negative, makes_never_negative, read_by


def clean_up(graph: Graph) -> None:
    """Bring a graph whose Q/DQ pairs are joined into its final float form.

    Args:
        graph: The graph to change.
    """
    drop_identities(graph)
    channels_first = move_to_channels_first(graph)
    simplify_reshapes(graph)
    fold_bias_additions(graph)
    restore_gemm(graph)
    keep_biases_of_sequences_apart(graph)
    restore_global_average_pools(graph, channels_first)
    fold_pads(graph)
    simplify_reshapes(graph)
    graph.prune()


def drop_identities(graph: Graph) -> None:
    """Remove Identity nodes, keeping the names of graph outputs.

    Args:
        graph: The graph to change.
    """
    for node in graph.sorted_nodes():
        if node.op != "Identity" or node.domain:
            continue
        source, written = node.inputs[0], node.output
        if written not in graph.outputs:
            graph.replace_reads(written, source)
            graph.remove(node)
            continue
        producer = graph.producer(source)
        if producer is not None and source not in graph.outputs:
            index = producer.outputs.index(source)
            graph.remove(node)
            graph.set_output(producer, written, index)
            graph.replace_reads(source, written)
            if source in graph.shapes:
                graph.shapes.setdefault(written, graph.shapes[source])
    graph.prune()


def fold_bias_additions(graph: Graph) -> None:
    """Fold the addition of one constant per channel into the convolution before it.

    Args:
        graph: The graph to change.
    """
    for add in graph.sorted_nodes():
        operand = _constant_operand(graph, add) if add.op == "Add" and add in graph else None
        if operand is None:
            continue
        conv = graph.producer(add.inputs[1 - operand])
        if conv is None or conv.op not in ("Conv", "ConvTranspose") or not graph.has_one_reader(conv.output):
            continue
        channels = _per_channel(graph, graph.constants[add.inputs[operand]], conv)
        if channels is None:
            continue
        if len(conv.inputs) > 2:
            existing = graph.constant(conv.inputs[2])
            if existing is None:
                continue
            channels = existing + channels
        bias = graph.add_constant(f"{conv.name}/bias", channels)
        graph.set_inputs(conv, [*conv.inputs[:2], bias])
        _write_instead(graph, conv, add)
    graph.prune()


def _constant_operand(graph: Graph, node: Node) -> int | None:
    constant = [index for index, tensor in enumerate(node.inputs) if graph.constant(tensor) is not None]
    return constant[0] if len(constant) == 1 and len(node.inputs) == 2 else None


def _per_channel(graph: Graph, value: np.ndarray, conv: Node) -> np.ndarray | None:
    """Return a constant as one value per output channel of a convolution, None where it varies otherwise."""
    rank = graph.rank(conv.output)
    kernel = graph.shape(conv.inputs[1])
    if rank is None or kernel is None or value.ndim > rank or value.dtype != np.float32:
        return None
    channels = kernel[0] if conv.op == "Conv" else (kernel[1] or 0) * int(conv.get("group", 1))
    full = value.reshape([1] * (rank - value.ndim) + list(value.shape))
    if channels is None or any(size != 1 for axis, size in enumerate(full.shape) if axis != 1):
        return None
    return np.broadcast_to(full.reshape(-1), (channels,)).copy() if full.size in (1, channels) else None


def _write_instead(graph: Graph, node: Node, absorbed: Node) -> None:
    """Remove `absorbed`, the only reader of `node`, and let `node` write its output."""
    written = absorbed.output
    graph.remove(absorbed)
    graph.set_output(node, written)


def restore_gemm(graph: Graph) -> None:
    """Join a rank-2 MatMul and the addition of a constant bias into Gemm.

    Args:
        graph: The graph to change.
    """
    for add, operand, product in _biased_products(graph):
        bias, kernel = graph.constants[add.inputs[operand]], graph.shape(product.inputs[1])
        if graph.rank(product.inputs[0]) != 2 or kernel is None or len(kernel) != 2 or kernel[1] != bias.size:
            continue
        if bias.dtype != np.float32:
            continue
        tensor = graph.add_constant(f"{product.name}/bias", bias.reshape(-1))
        inputs, name, written = [*product.inputs, tensor], product.name, add.output
        graph.remove(add)
        graph.remove(product)
        graph.add("Gemm", inputs, name, output=written)
    graph.prune()


def _biased_products(graph: Graph) -> Iterator[tuple[Node, int, Node]]:
    """Yield every addition of a constant to a MatMul that nothing else reads: Add, its constant's index, MatMul."""
    for add in graph.sorted_nodes():
        operand = _constant_operand(graph, add) if add.op == "Add" and add in graph else None
        product = None if operand is None else graph.producer(add.inputs[1 - operand])
        if operand is None or product is None or product.op != "MatMul" or not graph.has_one_reader(product.output):
            continue
        yield add, operand, product


def keep_biases_of_sequences_apart(graph: Graph) -> None:
    """Write the bias of an integer product on more than two axes with a second axis.

    Where all sizes are fixed, ONNX Runtime (1.31) makes Reshape, Gemm, Reshape of a MatMul and the addition of a bias
    with one axis, and computes that Gemm in float unless its result is quantized at once. MatMul and Add alone run on
    integers with fixed and with open sizes.

    Args:
        graph: The graph to change.
    """
    for add, operand, product in _biased_products(graph):
        bias, rank = graph.constants[add.inputs[operand]], graph.rank(product.inputs[0])
        makers = [graph.producer(tensor) for tensor in product.inputs]
        if bias.ndim != 1 or rank is None or rank < 3:
            continue
        if any(maker is None or maker.op != "DequantizeLinear" for maker in makers):
            continue
        inputs = list(add.inputs)
        inputs[operand] = graph.add_constant(f"{product.name}/bias", bias.reshape(1, -1))
        graph.set_inputs(add, inputs)
    graph.prune()


def restore_global_average_pools(graph: Graph, channels_first: list[Node]) -> None:
    """Turn the mean over all spatial axes into GlobalAveragePool.

    Args:
        graph: The graph to change.
        channels_first: The nodes that `move_to_channels_first` flipped; only of those is the second axis known to
            hold channels, while a mean over the last axes elsewhere may belong to a normalization.
    """
    for node in channels_first:
        rank = graph.rank(node.inputs[0]) if node.op == "ReduceMean" and node in graph else None
        axes = constant_axes(graph, node) if rank is not None else None
        if rank is None or axes is None or sorted(axis % rank for axis in axes) != list(range(2, rank)):
            continue
        keeps, written, name, source = node.get("keepdims", 1), node.output, node.name, node.inputs[0]
        graph.remove(node)
        if keeps:
            graph.add("GlobalAveragePool", [source], name, output=written)
            continue
        pool = graph.add("GlobalAveragePool", [source], name)
        shape = graph.shape(source)
        if shape is not None:
            graph.shapes[pool.output] = (*shape[:2], *[1] * (rank - 2))
        constant = graph.add_constant(f"{name}/axes", np.arange(2, rank))
        graph.add("Squeeze", [pool.output, constant], f"{name}/Squeeze", output=written)
    graph.prune()


def fold_pads(graph: Graph) -> None:
    """Fold zero padding into the convolution or max pool behind it, also through a Q/DQ pair.

    Args:
        graph: The graph to change.
    """
    for pad in graph.sorted_nodes():
        if pad.op != "Pad" or pad not in graph or pad.output in graph.outputs:
            continue
        pads = _spatial_zero_pads(graph, pad)
        readers, pair = _readers_through_pair(graph, pad)
        if pads is None or not readers:
            continue
        if not all(_takes_pads(graph, reader, pad) for reader in readers):
            _keep_from_max_pool(graph, pad)
            continue
        for reader in readers:
            existing = reader.get("pads") or [0] * len(pads)
            reader.set("pads", [int(a + b) for a, b in zip(existing, pads, strict=True)])
        for tensor in [pad.output, *pair]:
            if graph.shape(pad.inputs[0]) is not None:
                graph.shapes[tensor] = graph.shapes[pad.inputs[0]]
        graph.replace_reads(pad.output, pad.inputs[0])
        graph.remove(pad)
    graph.prune()


def _keep_from_max_pool(graph: Graph, pad: Node) -> None:
    """Stop ONNX Runtime (1.31) from folding zero padding into a MaxPool, which pads with minus infinity.

    It folds whatever pads with exactly 0, also where values are negative and the result is wrong. The smallest
    normal number instead of 0 is no difference after any rounding.
    """
    existing = graph.constant(pad.inputs[2]) if len(pad.inputs) > 2 else None
    is_float32 = existing is None or existing.dtype == np.float32
    if is_float32 and any(reader.op == "MaxPool" for reader in graph.readers(pad.output)):
        value = graph.add_constant(f"{pad.name}/value", np.array(np.finfo(np.float32).tiny, np.float32))
        graph.set_inputs(pad, [*pad.inputs[:2], value, *pad.inputs[3:]])


def _spatial_zero_pads(graph: Graph, pad: Node) -> list[int] | None:
    pads = graph.constant(pad.inputs[1])
    value = graph.constant(pad.inputs[2]) if len(pad.inputs) > 2 and pad.inputs[2] else np.zeros(())
    axes_given = len(pad.inputs) > 3 and bool(pad.inputs[3])
    if pads is None or value is None or float(value.reshape(-1)[0]) != 0.0 or axes_given:
        return None
    rank = pads.size // 2
    outside = [pads[0], pads[1], pads[rank], pads[rank + 1]] if rank > 2 else [1]
    if pad.get("mode", b"constant") != b"constant" or any(outside) or np.any(pads < 0):
        return None
    return [int(size) for size in (*pads[2:rank], *pads[rank + 2 :])]


def _readers_through_pair(graph: Graph, pad: Node) -> tuple[list[Node], list[str]]:
    """Return who reads the padded values, through pairs if need be, and the tensors of those pairs."""
    readers: list[Node] = []
    tensors: list[str] = []
    for reader in graph.readers(pad.output):
        if reader.op != "QuantizeLinear":
            readers.append(reader)
            continue
        if reader.output in graph.outputs:
            return [], []
        tensors.append(reader.output)
        for dequantize in graph.readers(reader.output):
            if dequantize.op != "DequantizeLinear" or dequantize.output in graph.outputs:
                return [], []
            tensors.append(dequantize.output)
            readers.extend(graph.readers(dequantize.output))
    return readers, tensors


def _takes_pads(graph: Graph, node: Node, pad: Node) -> bool:
    if node.get("auto_pad", b"NOTSET") != b"NOTSET":
        return False
    if node.op == "Conv":
        return True
    if node.op != "MaxPool" or node.get("ceil_mode", 0) or not _is_never_negative(graph, pad.inputs[0]):
        return False
    pads = _spatial_zero_pads(graph, pad) or []
    existing = node.get("pads") or [0] * len(pads)
    kernel = node.get("kernel_shape")
    return all(a + b < kernel[index % len(kernel)] for index, (a, b) in enumerate(zip(existing, pads, strict=True)))


def _is_never_negative(graph: Graph, tensor: str) -> bool:
    pending, seen = [tensor], {tensor}
    while pending:
        name = pending.pop()
        node, constant = graph.producer(name), graph.constant(name)
        if constant is not None and not np.any(constant < 0):
            continue
        if node is None:
            return False
        if not _makes_never_negative(graph, node):
            mode = node.get("mode", b"") if node.op == "Resize" else b""
            if not keeps_never_negative(node.op, mode.decode()):
                return False
            pending += [source for source in read_by(node.op, node.inputs) if source not in seen]
            seen.update(pending)
    return True


def _makes_never_negative(graph: Graph, node: Node) -> bool:
    if node.op != "Clip":
        return makes_never_negative(node.op)
    low = graph.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return low is not None and float(low) >= 0.0


def simplify_reshapes(graph: Graph) -> None:
    """Merge movements of axes of size 1 into Reshapes, and drop Reshapes that do nothing.

    Args:
        graph: The graph to change.
    """
    for node in graph.sorted_nodes():
        if node not in graph:
            continue
        if permutation(node) is not None:
            _merge_transpose_into_reshape(graph, node)
        elif node.op == "Reshape":
            _shorten_reshape(graph, node)
    graph.prune()


def _merge_transpose_into_reshape(graph: Graph, node: Node) -> None:
    """Reshape to (N, 1, 1, C), then to channels-first, is one Reshape to (N, C, 1, 1)."""
    perm, before = permutation(node), graph.producer(node.inputs[0])
    if perm is None or before is None or before.op != "Reshape" or not graph.has_one_reader(before.output):
        return
    sizes = graph.constant(before.inputs[1])
    if sizes is None or perm[0] != 0 or np.any(sizes[1:] == 0) or np.sum(sizes[1:] != 1) > 1:
        return
    moved = graph.add_constant(f"{before.name}/shape", sizes[list(perm)])
    graph.set_inputs(before, [before.inputs[0], moved])
    _write_instead(graph, before, node)


def _shorten_reshape(graph: Graph, node: Node) -> None:
    """Skip a Squeeze or Unsqueeze before a Reshape; drop a Reshape to the shape that is there already."""
    sizes, before = graph.constant(node.inputs[1]), graph.producer(node.inputs[0])
    if sizes is None or np.any(sizes == 0):
        return
    if before is not None and before.op in ("Squeeze", "Unsqueeze"):
        graph.set_inputs(node, [before.inputs[0], node.inputs[1]])
    shape = graph.shape(node.inputs[0])
    if shape is None or len(shape) != len(sizes) or node.output in graph.outputs:
        return
    wanted = [None if size == -1 else int(size) for size in sizes]
    if shape.count(None) <= 1 and all(want in (None, size) for want, size in zip(wanted, shape, strict=True)):
        graph.replace_reads(node.output, node.inputs[0])
        graph.remove(node)
