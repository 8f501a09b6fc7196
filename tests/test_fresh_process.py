"""Forked processes are as fresh as started ones, and end as those do."""


def test_nothing_of_this_package_is_imported(fresh):
    done = fresh.run("import sys; print(sys.argv, sorted(name for name in sys.modules if name.startswith('qdq')))")

    assert done.stdout.strip() == "['-c'] []"


def test_they_end_as_other_processes_do(fresh):
    left, failed, killed = (
        fresh.run("import sys; print('said'); sys.exit(3)"),
        fresh.run("1 / 0"),
        fresh.run("import os; os.kill(os.getpid(), 9)"),
    )

    assert (left.returncode, left.stdout, left.stderr) == (3, "said\n", "")
    assert failed.returncode == 1
    assert failed.stderr.strip().endswith("ZeroDivisionError: division by zero")
    assert killed.returncode == -9
