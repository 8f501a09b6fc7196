"""What ONNX Runtime makes of a file, by layer of its plan: kernels, fusions, conversions that stay."""

import onnx
import pytest

from qdq_workbench.errors import FileAccessError
from qdq_workbench.profiling import read_kernels


@pytest.fixture(scope="module")
def graphs(folder):
    return {kind: read_kernels(folder / f"{kind}.onnx") for kind in ("float", "int8")}


def test_every_kernel_has_the_layers_that_it_computes_or_converts_the_result_of_one(graphs):
    int8 = graphs["int8"]
    led = [(kernel.operator, kernel.layers, kernel.on_integers) for kernel in int8.kernels if kernel.layers]
    assert led[:3] == [
        ("QLinearConv", ("stem", "stem_relu"), True),
        ("QLinearConv", ("conv",), True),
        ("QLinearAdd", ("add", "relu"), True),
    ]
    pairs = [(kernel.operator, kernel.behind) for kernel in int8.conversions if "Linear" in kernel.operator]
    assert pairs == [("QuantizeLinear", "image")]
    assert int8.for_layer("relu") == int8.for_layer("add")
    assert int8.for_layer("image") == ()
    integers = sum(kernel.on_integers for kernel in int8.kernels if kernel.layers)
    assert f"{integers} of them on integers" in int8.summary()
    assert integers >= 5


def test_a_float_file_runs_in_float(graphs):
    assert set(graphs["float"].statuses().values()) == {"float"}
    assert set(graphs["int8"].statuses().values()) == {"int8"}


def test_a_conversion_stays_behind_the_last_layer_of_a_kernel(folder, tmp_path):
    file = onnx.load(folder / "int8.onnx")
    pair = next(node for node in file.graph.node if node.name == "relu/DequantizeLinear")
    file.graph.output.append(onnx.helper.make_tensor_value_info(pair.output[0], onnx.TensorProto.FLOAT, None))
    onnx.save(file, tmp_path / "more.onnx")

    found = read_kernels(tmp_path / "more.onnx").conversions

    assert ("DequantizeLinear", "relu") in [(kernel.operator, kernel.behind) for kernel in found]


def test_a_file_of_another_exporter_is_read_by_its_nodes(folder, tmp_path):
    file = onnx.load(folder / "int8.onnx")
    del file.metadata_props[:]
    onnx.save(file, tmp_path / "foreign.onnx")
    graph = read_kernels(tmp_path / "foreign.onnx")
    assert graph.plan is None
    assert any("conv" in name for kernel in graph.kernels for name in kernel.layers)
    with pytest.raises(FileAccessError, match="missing"):
        read_kernels(tmp_path / "missing.onnx")
