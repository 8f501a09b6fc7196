"""Transformations of float models that a user asks for before quantization."""
