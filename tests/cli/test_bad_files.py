"""Files that are not what a command needs, and names that it cannot write: exit code 2, one sentence, nothing lost."""

import os

import numpy as np
import pytest

from qdq_workbench._files import write_text
from qdq_workbench.cli.inputs import load_arrays
from qdq_workbench.cli.outputs import MODEL, check_output
from qdq_workbench.errors import DataError, OutputPathError


@pytest.fixture
def odd(workplace):
    """Add files to the workplace that hold something else than their names say."""
    (workplace / "text.onnx").write_text("not a model")
    (workplace / "broken.json").write_text("{")
    (workplace / "folder.keras").mkdir(exist_ok=True)
    return workplace


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("lint text.onnx", "not an ONNX model"),
        ("lint model.keras", "not an ONNX model"),
        ("lint folder.keras", "is a folder"),
        ("verify none.onnx --certificate broken.json", "this one is not valid JSON"),
        ("export model.keras -o x.foo", "must end in .onnx or .tflite"),
        ("export model.keras -o model.keras", "must end in .onnx or .tflite"),
        ("export model.keras -o nowhere/x.onnx", "folder that does not exist"),
        ("export model.keras -o x.onnx --opset 3", "Supported opsets are 13 to"),
        ("plan model.keras -o plan.txt", "must end in .json"),
        ("quantize model.keras -o q", "must end in .keras"),
        ("quantize model.keras -o folder.keras", "is a folder"),
        ("quantize model.keras -o model.keras", "overwrite the model"),
        ("calibrate model.keras --data images.npy -o q.onnx", "must end in .keras"),
        ("calibrate model.keras --data images.npy -o q.keras --ranges r.csv", "must end in .json"),
        ("finetune model.keras --data images.npz -o q.txt", "must end in .keras"),
        ("learn-rounding model.keras --data images.npz -o q.txt", "must end in .keras"),
        ("gptq model.keras --data images.npz -o q.txt", "must end in .keras"),
        ("sensitivity model.keras --data images.npy -o s.csv", "must end in .json"),
        ("sensitivity model.keras --data images.npy --figure s.png", "must end in .html"),
        ("sensitivity model.keras --data images.npy --top-k 1 --spec-output s.txt", "must end in .yaml"),
        ("verify text.onnx --certificate c.txt", "must end in .json"),
        ("plan folder.keras", "is a folder"),
        ("calibrate model.keras --data folder.keras -o q.keras", "is a folder"),
        ("demo --data images.npy", "one array without a name"),
    ],
)
def test_wrong_files_and_names_exit_with_2_before_any_work(cli, odd, command, says):
    before = (odd / "model.keras").read_bytes()

    code, out, errors = cli(*command.split())

    assert (code, out) == (2, "")
    assert says in errors
    assert "not foreseen" not in errors
    assert (odd / "model.keras").read_bytes() == before


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut off", b"\x93NUMPY"], ids=repr)
def test_what_numpy_cannot_read_is_a_named_error(tmp_path, suffix, content):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)

    with pytest.raises(DataError, match=r"numpy\.save.*Received: path="):
        load_arrays(str(path))


def test_an_archive_cut_off_in_the_middle_is_a_named_error(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=(64, 8)))
    content = bytearray(path.read_bytes())
    content[200:900] = bytes(700)
    path.write_bytes(content)

    with pytest.raises(DataError, match="plain arrays"):
        load_arrays(str(path))


def test_names_of_outputs(tmp_path):
    check_output(None, MODEL)
    check_output(str(tmp_path / "M.KERAS"), MODEL)
    os.mkfifo(tmp_path / "pipe.keras")
    with pytest.raises(OutputPathError, match="device or a pipe"):
        check_output(str(tmp_path / "pipe.keras"), MODEL)
    with pytest.raises(OutputPathError, match="device or a pipe"):
        write_text(tmp_path / "pipe.keras", "a device must not become a file")
    with pytest.raises(OutputPathError, match="A path must be"):
        check_output(f"{tmp_path}/a\0b.keras", MODEL)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("plan model.keras --spec kept.json -o ./kept.json", "kept.json"),
        ("sensitivity model.keras --data images.npy --plan kept.json -o kept.json", "kept.json"),
        ("search model.keras --data images.npz --metric sqnr --spec kept.json --report kept.json", "kept.json"),
        ("diagnose model.keras --data images.npy --plan kept.json --report kept.json", "kept.json"),
        ("learn-rounding q.keras --data images.npy --reference model.keras -o model.keras", "model.keras"),
        ("export q.keras -o none.npz --import kept.py --interpreter kept.py", "kept.py"),
    ],
)
def test_an_output_does_not_replace_an_input_of_another_kind(cli, workplace, q_model, line, kept):
    (workplace / "kept.json").write_text('{"layers": []}')
    (workplace / "kept.py").write_text("")
    before = (workplace / kept).read_bytes()

    code, out, errors = cli(*line.split())

    assert (code, out) == (2, "")
    assert "would overwrite one that this command reads" in errors
    assert (workplace / kept).read_bytes() == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("profile net.onnx --threads 99999999999", "threads may be 1024 at most"),
        ("search model.keras --data images.npy --metric sqnr --objective ms --threads 2000", "from 1 to 1024"),
        ("demo --data images.npy --output no_demo", "images of classes"),
        ("export q.keras -o none.npz --target tensorrt", "TargetError: Firmware adds int32 biases"),
    ],
)
def test_wrong_values_are_named_and_leave_nothing_behind(cli, workplace, onnx_file, line, says):
    before = set(workplace.iterdir())

    code, out, errors = cli(*line.split())

    assert (code, out) == (2, ""), errors
    assert says in errors
    assert set(workplace.iterdir()) == before


@pytest.mark.parametrize("seed", ["-1", "2147483648", "one"])
def test_a_seed_that_keras_refuses_is_bad_usage(cli, seed):
    with pytest.raises(SystemExit) as stop:
        cli("finetune", "q.keras", "--data", "images.npz", "-o", "none.keras", "--seed", seed)
    assert stop.value.code == 2
