"""What to say where a runtime runs a file, or times a plan, that was made for another target."""

from __future__ import annotations

_TARGETS = {"ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"}  # of the runtimes that files are run in here


def other_target_remark(
    target: str | None, engine: str = "ONNX Runtime", what: str = "The file", do: str = "export"
) -> str:
    """Return that a runtime runs what was made for another one, and what to do; empty where it was made for it.

    Args:
        target: Name of the target; None where it is not known.
        engine: The runtime, such as "ONNX Runtime".
        what: What was made.
        do: What to do with the runtime's own target.
    """
    own = _TARGETS.get(engine)  # a saved report may name an engine that is not known here
    if target is None or own is None or target == own:
        return ""
    return (
        f"{what} was exported for {target}. {engine} runs it as it is, so its kernels and times here are not those of "
        f"{target}; for {engine}, {do} with target={own!r} (--target {own})."
    )
