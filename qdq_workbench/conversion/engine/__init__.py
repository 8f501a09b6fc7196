"""From a plan to a quantized model and back: rebuild, wrap, fold, cut, strip, retarget."""
