"""The `.tflite` side of an export."""
