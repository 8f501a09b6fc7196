"""QDQ Workbench: quantize Keras 3 models with Q/DQ pairs and export them to clean ONNX files."""
