import os

import pytest

from qdq_workbench.cli import startup


def test_chatter_is_held_back(capfd):
    with startup._stderr_held_back():
        os.write(2, b"noise\n")
    os.write(2, b"signal\n")

    assert capfd.readouterr().err == "signal\n"


def test_chatter_is_shown_when_the_import_fails(capfd):
    with pytest.raises(ImportError), startup._stderr_held_back():
        os.write(2, b"the reason\n")
        raise ImportError

    assert capfd.readouterr().err == "the reason\n"


def test_another_backend_that_is_set_does_not_count(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    startup.import_keras()

    assert os.environ["KERAS_BACKEND"] == "tensorflow"
