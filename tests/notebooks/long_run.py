"""`make notebooks`: every notebook whole, each in a process of its own; exit status 1 where a cell fails or it takes too long."""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

#: What a reader waits for at most, in seconds, on two idle cores; `--seconds` gives slower machines more.
LONGEST = 180.0
HERE = pathlib.Path(__file__).resolve().parent


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="the starts of their names; all by default")
    parser.add_argument("--seconds", type=float, default=LONGEST, help="what each may take at most; by default %(default)g")
    options = parser.parse_args()
    failed = []
    for path in sorted(HERE.parents[1].joinpath("notebooks").glob("*.ipynb")):
        if not path.name.startswith(tuple(options.only)):
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="qdq-notebook-") as folder:
            run = [sys.executable, str(HERE / "run_notebook.py"), str(path), folder]
            done = subprocess.run(run, check=False, capture_output=True, text=True)
        seconds = time.monotonic() - start
        too_long = f", more than {options.seconds:g} s" if seconds > options.seconds else ""
        print(f"{path.name}: {'failed' if done.returncode else 'passed'}, {seconds:.0f} s{too_long}", flush=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
        if done.returncode or too_long:
            failed.append(path.name)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
