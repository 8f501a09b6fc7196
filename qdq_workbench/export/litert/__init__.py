"""The export to `.tflite` files."""
