"""The wheel and the source archive in an environment of their own, outside of the checkout, used as a user uses them.

    python tests/packaging/installed.py dist --sbom dist

Takes some minutes, most of them for TensorFlow. `make installed` builds both archives first.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
import venv

# What a user writes, with one line that the types must refuse.
SCRIPT = """
import keras
import numpy as np
import qdq_workbench as qdq
from qdq_widgets import Workbench

image = keras.Input((4,), name="image")
model = keras.Model(image, keras.layers.Dense(2, name="head")(image))
q_model = qdq.quantize_model(model, target="onnxruntime")
result: qdq.results.CalibrationResult = qdq.calibrate(q_model, np.ones((2, 4), "float32"), verbose=False)
report = qdq.export_onnx(q_model, "model.onnx")
print(report.pairs + 1, Workbench(model).plan.target.upper())
qdq.export_onnx(q_model, 7)
"""
# Nothing is asked about the types of these, whose stubs take mypy longer than all of ours.
SETTINGS = """[mypy]
strict = True
ignore_missing_imports = True
[mypy-numpy.*,IPython.*,rich.*,PIL.*,traitlets.*,jinja2.*]
follow_imports = skip
follow_imports_for_stubs = True
"""
USE = """
import importlib.util, json, pathlib, sys
import keras, numpy as np
import qdq_workbench as qdq, qdq_widgets
from qdq_widgets import Workbench, write_graph_page

root = pathlib.Path(sys.prefix).resolve()
for package in (qdq, qdq_widgets):
    assert root in pathlib.Path(package.__file__).resolve().parents, package.__file__
assert (pathlib.Path(qdq_widgets.__file__).parent / "static" / "graph_view.js").stat().st_size > 10_000
image = keras.Input((8, 8, 3), name="image")
x = keras.layers.Conv2D(4, 3, activation="relu", name="conv")(image)
model = keras.Model(image, keras.layers.Dense(2, name="head")(keras.layers.Flatten()(x)))
data = np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype("float32")
bench = Workbench(model, calibration_data=data, target="onnxruntime")
bench.calibrate()
assert bench.export("bench.onnx").passed
assert len(str(bench.view.graph._esm)) > 10_000, "the widget has no script"
write_graph_page(bench.plan, "graph.html")
# The images and the network of a demo of some seconds.
classes = np.arange(256) % 2
images = np.random.default_rng(0).normal(classes[:, None, None, None] - 0.5, 1.0, (256, 8, 8, 3)).astype("float32")
np.savez("images.npz", x_train=images, y_train=classes, x_test=images[:64], y_test=classes[:64])
x = keras.layers.Dense(32, activation="relu", name="hidden")(keras.layers.Flatten()(image))
keras.Model(image, keras.layers.Dense(2, activation="softmax", name="head")(x)).save("network.keras")
print(json.dumps({"keras": keras.__version__, "numpy": np.__version__}))
"""


class Environment:
    """An empty environment and a folder to work in.

    Args:
        folder: Where both are made.
        python: The interpreter; None for the one that runs this.
        borrow: Whether the packages of the interpreter that runs this can be imported there, and JupyterLab's files
            found; not what is installed in place, such as this checkout.
    """

    def __init__(self, folder: pathlib.Path, python: str | None, *, borrow: bool = False) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        root = folder / "environment"
        if python is None:
            # To install pip takes longer than to install the wheel.
            venv.create(root, with_pip=not (borrow and importlib.util.find_spec("pip")))
        else:
            subprocess.run([python, "-m", "venv", root], check=True)
        self.bin = root / ("Scripts" if sys.platform == "win32" else "bin")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.variables = {**inherited, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if borrow:
            # A line of a .pth file adds a folder, but not what the .pth files in that folder name.
            own = pathlib.Path(sysconfig.get_path("purelib", vars={"base": str(root)}))
            (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
            share = pathlib.Path(sys.prefix) / "share" / "jupyter"
            self.variables |= {"JUPYTERLAB_DIR": str(share / "lab"), "JUPYTER_PATH": str(share)}

    def pip(self, *arguments: str) -> None:
        """Install something."""
        self.run("python", "-m", "pip", "--quiet", "install", *arguments)

    def run(self, command: str, *arguments: str, code: int = 0) -> str:
        """Run a command of the environment in the folder; return what it printed."""
        done = subprocess.run(
            [self.bin / command, *arguments],
            cwd=self.work,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (
            f"{command} {arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done.stdout


def use(environment: Environment, *, small: bool = False) -> None:
    """Import, quantize, export with the bench, read a page, run the demo, open the notebook, check a script's types.

    Args:
        environment: Where the package is installed.
        small: Whether the demo takes a network and images of its own, not those that take a minute to train.
    """
    (environment.work / "use.py").write_text(USE)
    print("imports and the bench:", environment.run("python", "use.py").splitlines()[-1], flush=True)
    assert environment.run("qdq-workbench", "docs", "glossary").startswith("# Glossary\n")
    own = ("--data", "images.npz", "--model", "network.keras") if small else ()
    shutil.rmtree(environment.work / "demo", ignore_errors=True)
    environment.run("qdq-workbench", "demo", "--epochs", "3", "--fine-tune-epochs", "1", "--output", "demo", *own)
    print("demo:", len(list((environment.work / "demo").iterdir())), "files", flush=True)
    open_lab(environment)
    check_types(environment)


def check_types(environment: Environment) -> None:
    """Check the types of a user's script."""
    (environment.work / "script.py").write_text(SCRIPT)
    (environment.work / "settings.ini").write_text(SETTINGS)
    found = environment.run("python", "-m", "mypy", "--config-file", "settings.ini", "script.py", code=1)
    errors = re.findall(r"script\.py:(\d+): error: .*", found)
    wrong = SCRIPT.splitlines().index("qdq.export_onnx(q_model, 7)") + 1
    assert errors == [str(wrong)], f"expected one error, in line {wrong}:\n{found}"
    print("mypy: the one wrong line, and no other", flush=True)


def open_lab(environment: Environment) -> None:
    """Open `qdq-workbench lab` on the installed notebook, see that it answers, and close it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [environment.bin / "qdq-workbench", "lab", "--no-browser", "--allow-root", "--port", str(port)]
    log = environment.work / "lab.log"
    with log.open("w") as written:
        lab = subprocess.Popen(
            command,
            cwd=environment.work,
            env=environment.variables,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 120.0
        while not answers(f"http://127.0.0.1:{port}/api"):
            assert lab.poll() is None, f"lab ended:\n{log.read_text()}"
            assert time.monotonic() < until, f"lab does not answer:\n{log.read_text()}"
            time.sleep(0.5)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(30)
    notebook = json.loads((environment.work / "01_quickstart.ipynb").read_text(encoding="utf-8"))
    print("lab: answered, on a notebook of", len(notebook["cells"]), "cells", flush=True)


def show(environment: Environment, screenshot: pathlib.Path) -> None:
    """Show the bench in a JupyterLab of the environment, in a browser; its graph is painted and takes clicks."""
    shown = pathlib.Path(__file__).with_name("shown.py").resolve()
    print("browser:", environment.run("python", str(shown), str(screenshot)).splitlines()[-1], flush=True)


def answers(address: str) -> bool:
    """Return whether a server answers there."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - our own server
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def write_sbom(environment: Environment, folder: pathlib.Path, place: pathlib.Path) -> None:
    """Write what the installation consists of, as CycloneDX, by a tool in an environment of its own."""
    tool = folder / "tool"
    venv.create(tool, with_pip=True)
    subprocess.run([tool / "bin" / "python", "-m", "pip", "--quiet", "install", "cyclonedx-bom"], check=True)
    written = place / "python.cdx.json"
    subprocess.run(
        [tool / "bin" / "cyclonedx-py", "environment", "--output-file", written, environment.bin / "python"], check=True
    )
    parts = json.loads(written.read_text(encoding="utf-8"))
    for part in parts["components"]:  # where the wheel lay on this machine is nobody's business
        part["externalReferences"] = [
            each for each in part.get("externalReferences", []) if not each["url"].startswith("file:")
        ]
    written.write_text(json.dumps(parts, indent=2) + "\n", encoding="utf-8")
    print("SBOM:", written.name, len(parts["components"]), "packages", flush=True)


def main() -> None:
    """Install and use; exit status 1 where something fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=pathlib.Path, help="the folder with the wheel and the source archive")
    parser.add_argument("--python", help="the interpreter of the environment; default: this one")
    parser.add_argument("--tensorflow", default="tensorflow-cpu", help="its build; default: tensorflow-cpu")
    parser.add_argument("--constraints", help="versions of dependencies, as pip takes them: the oldest ones, say")
    parser.add_argument("--sbom", type=pathlib.Path, metavar="FOLDER", help="write the SBOM of the installation there")
    options = parser.parse_args()
    (wheel,) = options.dist.resolve().glob("*.whl")
    (archive,) = options.dist.resolve().glob("*.tar.gz")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="qdq-installed-"))
    try:
        environment = Environment(folder, options.python)
        environment.pip("--no-deps", str(wheel))
        needed = environment.run("python", "-m", "qdq_workbench.cli.requirements", "--tensorflow", options.tensorflow)
        constraints = ["--constraint", str(pathlib.Path(options.constraints).resolve())] if options.constraints else []
        environment.pip(*needed.split(), *constraints)
        if options.sbom:
            write_sbom(environment, folder, options.sbom.resolve())
        environment.pip("mypy", "types-PyYAML", "playwright", "pillow")
        for form in (wheel, archive):
            print(f"== {form.name}", flush=True)
            environment.pip("--no-deps", "--force-reinstall", str(form))
            use(environment)
            show(environment, folder / "bench.png")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
