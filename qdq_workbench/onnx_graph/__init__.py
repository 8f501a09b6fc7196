"""One ONNX graph: an editable form, a read-only index of its Q/DQ nodes, sessions and files."""
