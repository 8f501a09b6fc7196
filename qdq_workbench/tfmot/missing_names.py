"""Advice for names of TFMOT that have no counterpart in this library."""

from __future__ import annotations

_SCHEMES = (
    "which layers are quantized, and how, is said by QuantizationSpec, by cases (CustomQDQInsertionCase) and by a "
    "QuantizeConfig per layer; quantize_apply takes Default8BitQuantizeScheme and DefaultNBitQuantizeScheme"
)
_GRAPHS = (
    "nothing is rewritten before quantizing: batch normalizations are folded on export (fold_batch_norm does it by "
    "hand), fused patterns are found in the plan, and a CustomQDQInsertionCase changes where pairs go"
)
_SPARSE = (
    "sparse and clustered weights: prune or cluster first, then quantize with "
    "LayerQuantizeConfig; codebook_weights clusters weights onto the integer grid"
)
_INSTEAD = {
    "QuantizeScheme": _SCHEMES,
    "QuantizeRegistry": _SCHEMES,
    "Default8BitQuantizeRegistry": _SCHEMES,
    "DefaultNBitQuantizeRegistry": _SCHEMES,
    "QuantizeLayoutTransform": _GRAPHS,
    "Default8BitQuantizeLayoutTransform": _GRAPHS,
    "DefaultNBitQuantizeLayoutTransform": _GRAPHS,
    "default_8bit_transforms": _GRAPHS,
    "default_n_bit_transforms": _GRAPHS,
    "graph_transformations": _GRAPHS,
    "collab_opts": _SPARSE,
    "sparsity": _SPARSE,
    "clustering": _SPARSE,
}


def explained(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have, with advice if TFMOT has the name.

    Example:
        >>> "QuantizationSpec" in str(explained("tfmot", "QuantizeScheme"))
        True
    """
    text = f"module {module!r} has no attribute {name!r}"
    if name in _INSTEAD:
        text += f". TFMOT has it; here {_INSTEAD[name]}"
    return AttributeError(text)
