"""The passes over the ONNX graph of an export: one pass, one file, each with a contract; `order.py` lists them."""
