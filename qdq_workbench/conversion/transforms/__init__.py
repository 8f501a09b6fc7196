"""Transformations of float models before quantization, on the user's request."""
