"""Corrections of a float model before it is quantized without training, one per file; `correction` tells them."""
