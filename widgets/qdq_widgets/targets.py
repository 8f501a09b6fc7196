"""The targets that the bench offers, with the names that people know them by."""

from __future__ import annotations

TARGETS = {
    "tensorrt": "NVIDIA TensorRT",
    "onnxruntime": "ONNX Runtime (CPU)",
}
MODES = {
    "full": "full: defaults, spec and cases",
    "partial": "partial: only spec and cases",
}


def target_title(name: str) -> str:
    """Return a target's full name.

    Args:
        name: The name that is passed as `target=`.

    Example:
        >>> target_title("tensorrt")
        'NVIDIA TensorRT'
    """
    return TARGETS.get(name, name)
