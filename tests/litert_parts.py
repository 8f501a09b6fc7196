"""LiteRT files made by hand: tensors with data and scales, and the operators that read them."""

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from qdq_workbench.export.litert.tflite_file import FLOAT32


class LiteMaker:
    """Builds a file of one subgraph; tensors are known by their index."""

    def __init__(self):
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.model = schema.ModelT()
        self.model.version, self.model.subgraphs, self.model.operatorCodes = 3, [self.graph], []
        self.model.buffers = [schema.BufferT()]

    def tensor(self, name, shape, kind=FLOAT32, data=None, scales=None, axis=0, buffer=0):
        """Add a tensor, a constant if it has data or the buffer of another one; return its index."""
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), kind, buffer
        if data is not None:
            held = schema.BufferT()
            held.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self.model.buffers.append(held)
            tensor.buffer = len(self.model.buffers) - 1
        if scales is not None:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.atleast_1d(np.asarray(scales, np.float32))
            tensor.quantization.zeroPoint = np.zeros(np.size(scales), np.int64)
            tensor.quantization.quantizedDimension = axis
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def operator(self, name, inputs, outputs):
        """Add an operator with an entry of its own in the list of codes."""
        code, operator = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        self.model.operatorCodes.append(code)
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        self.graph.operators.append(operator)

    def content(self):
        """Return the bytes of the file."""
        return bytes(flatbuffer_utils.convert_object_to_bytearray(self.model))
