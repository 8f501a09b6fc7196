"""A tiny residual model on disk, with data that fit it: what every command's test starts from."""

import numpy as np
import pytest
from small_models import residual_net


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    """Return a folder with model.keras, images.npy and images.npz; commands may add to it."""
    folder = tmp_path_factory.mktemp("cli")
    residual_net().save(folder / "model.keras")
    images = np.random.default_rng(0).standard_normal((32, 8, 8, 2)).astype(np.float32)
    np.save(folder / "images.npy", images)
    np.savez(folder / "images.npz", image=images)
    return folder


@pytest.fixture
def cli(workplace, monkeypatch, capsys):
    """Run one command in the workplace; returns exit code, standard output and standard error."""
    from qdq_workbench.cli.main import main

    monkeypatch.chdir(workplace)

    def run(*arguments):
        code = main(list(arguments))
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


@pytest.fixture
def q_model(cli, workplace):
    """Return the name of a calibrated quantized model in the workplace."""
    if not (workplace / "q.keras").exists():
        code, _, errors = cli(
            "quantize",
            "model.keras",
            "-o",
            "q.keras",
            "--case",
            "ResNetV1QDQCase",
            "--target",
            "onnxruntime",
            "--calibration-data",
            "images.npy",
        )
        assert code == 0, errors
    return "q.keras"


@pytest.fixture
def onnx_file(cli, workplace, q_model):
    """Return the name of the exported file in the workplace."""
    if not (workplace / "net.onnx").exists():
        code, _, errors = cli("export", q_model, "-o", "net.onnx")
        assert code == 0, errors
    return "net.onnx"
