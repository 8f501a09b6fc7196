import subprocess
import sys

import pytest

from qdq_workbench.cli.requirements import main, select_requirements

DECLARED = [
    "tensorflow>=2.18",
    "onnx>=1.17",
    "tomli>=2; python_version < '3.11'",
    "pytest>=8.3; extra == 'dev'",
    "exceptiongroup>=1; python_version < '3.11' and extra == 'dev'",
]


def test_tensorflow_cpu_keeps_the_version_range():
    assert select_requirements(DECLARED, tensorflow="tensorflow-cpu")[0] == "tensorflow-cpu>=2.18"


def test_extras_are_left_out_unless_asked_for():
    assert select_requirements(DECLARED) == ["tensorflow>=2.18", "onnx>=1.17", "tomli>=2; python_version < '3.11'"]
    assert select_requirements(DECLARED, extras=["dev"])[3:] == [
        "pytest>=8.3",
        "exceptiongroup>=1; python_version < '3.11'",
    ]


def test_prints_what_the_installed_distribution_declares(capsys):
    assert main(["--tensorflow", "tensorflow-cpu", "dev"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("tensorflow-cpu>=") for line in lines)
    assert not any(line.startswith("tensorflow>=") for line in lines)
    assert any(line.startswith("pytest>=") for line in lines)


def test_an_unknown_extra_is_bad_usage(capsys):
    assert main(["nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("build", ["tensorflow", "tensorflow-cpu"])
def test_needs_nothing_but_the_standard_library(build):
    # -S -I: no site-packages, so that any other import fails, as on a machine where nothing is installed yet.
    from project import ROOT

    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from qdq_workbench.cli.requirements import select_requirements\n"
        f"print(select_requirements(['tensorflow>=2'], tensorflow={build!r}))"
    )
    finished = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=True)

    assert finished.stdout.strip() == f"['{build}>=2']"
