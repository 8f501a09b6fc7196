"""`make load`: a long session in one bench of a deep model; prints what it held, and fails where that grows.

After every action the plan is what follows from the state, the page shows it, and what was undone comes back as it was.
Memory is read after the first fifth of the actions, when every pane was seen, and at the end.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from load.networks import chain
from load.session import Session

GROWTH = 1.10
# Rows and texts of the page follow the spec, up to what lists show: 100 entries, of eight widgets each, alone.
OBJECTS = "objects of Python"
JUDGED = ("kernel MB", OBJECTS, "widgets beside the view")


def main() -> None:
    """Use a bench; exit status 1 where memory grew, an error where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=1000, help="how many actions (default: 1000)")
    parser.add_argument("--layers", type=int, default=3000, help="how many layers (default: 3000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other actions (default: 0)")
    parser.add_argument("--minutes", type=float, help="end then, with the last checks, however few actions were taken")
    parser.add_argument("--no-undo", action="store_true", help="without undoing everything at the end, and redoing it")
    parser.add_argument("--no-own-cases", action="store_true", help="without a case of the user's own")
    options = parser.parse_args()
    session = Session(chain(options.layers), options.seed, own_cases=not options.no_own_cases, target="onnxruntime")
    print(f"{len(session.bench.graph.nodes)} nodes; at the start: {_text(session.memory())}", flush=True)
    started, warm, warming = time.perf_counter(), None, max(1, options.actions // 5)
    for number in range(1, options.actions + 1):
        session.act()
        if number == warming:
            session.see_every_pane()
        if number % max(1, options.actions // 20) == 0 or number == warming:
            session.forget()
            print(f"{number} actions, {len(session.bench.history)} steps: {_text(session.memory())}", flush=True)
        if number == warming:
            warm, steps = session.memory(), len(session.bench.history)
        if options.minutes and number > warming and time.perf_counter() - started > 60 * options.minutes:
            break
    seconds = time.perf_counter() - started
    session.forget()
    last = session.memory()
    if not options.no_undo:
        session.to_the_start_and_back()
    held = session.memory()[OBJECTS]
    count = session.drop_steps()
    left = session.memory()[OBJECTS]
    each = (held - left) / count
    print(f"{number} actions in {seconds:.0f} s with all checks: {dict(session.taken)}")
    print(f"refused without a trace: {dict(session.refused)}; {session.page.received / 1e6:.1f} MB of messages")
    growth = {name: last[name] / warm[name] for name in last}
    # Printed alone: how much of what grew the steps of the history account for.
    growth["objects beside the steps"] = left / (warm[OBJECTS] - steps * each)
    print(f"each of {count} steps held {each:,.0f} objects ({steps} steps at the first reading)")
    print(f"from action {warming} to {number}: " + ", ".join(f"{k} x{v:.3f}" for k, v in growth.items()))
    sys.exit(1 if any(growth[name] > GROWTH for name in JUDGED) else 0)


def _text(memory: dict[str, float]) -> str:
    return ", ".join(f"{value:,.{0 if value > 1e5 else 1}f} {name}" for name, value in memory.items())


if __name__ == "__main__":
    main()
