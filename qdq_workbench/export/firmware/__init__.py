"""A quantized model as arrays, fixed-point multipliers and a list of integer operators, for firmware."""
