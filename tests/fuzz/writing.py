"""What the steps share: which tensors fit, and writing a layer."""


def rank(number):
    """Return a test for tensors of a rank, real ones."""
    return lambda tensor: len(tensor.shape) == number and "float" in tensor.dtype


def is_float(tensor):
    return "float" in tensor.dtype


def layer(writer, expression, tensor):
    """Write a layer of its own line, so that it can be shared, and call it."""
    if tensor is None:
        return
    name = writer.fresh("layer")
    if not writer.run(f"{name} = {expression[:-1]}{', ' if expression[-2] != '(' else ''}name={name!r})"):
        return
    if writer.compute(f"{name}({tensor})") is None:
        writer.lines.pop()
    elif "[" not in tensor:
        writer.callables.append((name, tensor))
