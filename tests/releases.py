"""The installed releases, as numbers to compare, for facts that hold from one on or up to one."""

from importlib import metadata


def _release(package):
    return tuple(int(number) for number in metadata.version(package).split(".")[:2])


KERAS, ONNX, ONNXRUNTIME = map(_release, ("keras", "onnx", "onnxruntime"))
