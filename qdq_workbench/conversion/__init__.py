"""From a plan to a model and back: quantize, strip, fold, recover integers."""
