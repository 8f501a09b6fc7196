"""Time of `import qdq_workbench` in a fresh process, beside an empty process and TensorFlow's own import.

python benchmarks/import_time.py
"""

import subprocess
import sys

from rounds import interleaved, record

STATEMENTS = {
    "nothing": "pass",
    "qdq_workbench": "import qdq_workbench, sys; sys.exit('tensorflow' in sys.modules)",
    "tensorflow": "import tensorflow",
}


def run(statement: str) -> None:
    """Run a statement in a fresh process."""
    subprocess.run([sys.executable, "-c", statement], check=True)  # noqa: S603 - the statements are those above


def main() -> None:
    """Print what the imports take beyond starting Python."""
    calls = {name: (lambda statement=statement: run(statement)) for name, statement in STATEMENTS.items()}
    seconds = interleaved(calls, rounds=5)
    for name in ("qdq_workbench", "tensorflow"):
        print(f"import {name}: {seconds[name] - seconds['nothing']:.3f} s beyond starting Python", flush=True)
    record({"import qdq_workbench / starting Python": seconds["qdq_workbench"] / seconds["nothing"]})


if __name__ == "__main__":
    main()
