"""The remark for a file or plan that is run or timed in another runtime than that of its target."""

from __future__ import annotations

_TARGETS = {"ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"}  # of the runtimes that can run files here


def other_target_remark(
    target: str | None, engine: str = "ONNX Runtime", what: str = "The file", do: str = "export"
) -> str:
    """Return a remark that a file was exported for another runtime, with a remedy; empty if it fits or is not known.

    `what` is the subject of the sentence, and `do` the verb of the remedy.
    """
    own = _TARGETS.get(engine)  # a saved report may name an engine that is not known here
    if target is None or own is None or target == own:
        return ""
    return (
        f"{what} was exported for {target}. {engine} runs it as it is, so its kernels and times here are not those of "
        f"{target}; for {engine}, {do} with target={own!r} (--target {own})."
    )
