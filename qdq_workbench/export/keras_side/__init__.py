"""The Keras side of an export: the cut model, traced and converted by tf2onnx."""
