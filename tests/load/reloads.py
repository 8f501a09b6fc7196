"""The page is loaded again in the middle of each long work: the work goes on, is shown, and can be stopped."""

import sys
import time

from load.lab import lab, prepare, shown_bench

PATIENCE = 60
BENCH = """
net = chain(200)
net.compile('adam', 'sparse_categorical_crossentropy', metrics=['accuracy'])
few = np.random.default_rng(0).normal(size=(64, 4, 4, 2)).astype('float32'), np.arange(64) % 3
many = np.repeat(few[0], 256, axis=0), np.repeat(few[1], 256)
wb = Workbench(net, train_data=many, validation_data=many, calibration_data=many[0], target='onnxruntime')
wb
"""
# A plan is scored when it is calibrated, another one not yet.
WORKS = {
    "calibration": "wb.calibrate(batch_size=1)",
    "score": "(wb.configure('b0_conv1', 'weight', num_bits=4), wb.evaluate(batch_size=1))",
    "sensitivity": "wb.sensitivity(samples=16384)",
    "diagnosis": "wb.diagnose(samples=16384)",
    "speed": "wb.measure_speed(rounds=100000)",
    # Before the training, an epoch of which may end before it is stopped: trained weights take no correction.
    "learning the rounding": "wb.correct('learn_rounding', steps=20000)",
    "fine-tuning": "wb.fine_tune(epochs=1000)",
    "search": "wb.search(accuracy_floor=0.99, samples=16384)",
    "export": "wb.export('reloaded.onnx', certificate=True)",
}
# An export has two parts and no progress within them, a scoring of one model no parts.
NO_PROGRESS = ("export", "evaluation")


def reload_during(bench, work, call):
    """Start a work, load the page again, stop the work there; returns the bench of that page and what went wrong."""
    bench.notebook.ask(f"failed = []; _ = wb.jobs.start(lambda: {call}, failed.append)")
    bench.wait_until("wb.jobs.current is not None or failed")
    if bench.value("failed") != "[]":
        return bench, f"{work}: {bench.value('failed')}"
    bench.wait_for(lambda: _stop(bench).is_visible(), "Stop is there")
    started = time.monotonic()
    bench.notebook.save_and_reload()
    again = type(bench)(bench.notebook, 1, bench._screenshots)
    seconds = time.monotonic() - started
    label = again.value("'' if wb.jobs.current is None else wb.jobs.current.label")
    found = _shown_and_stopped(again, label) if label else _shown_as_done(again, work)
    errors = again.value("[type(error).__name__ for error in failed]")
    if errors not in ("[]", "['BenchStoppedError']"):
        found.append(f"it failed: {again.value('failed')}")
    shown = again.root.locator(".qdq-foot").inner_text().strip().replace("\n", " ")
    print(f"{work}: there again in {seconds:.1f} s, the page says {shown!r}: {'; '.join(found) or 'good'}", flush=True)
    return again, "; ".join(found)


def _stop(bench):
    return bench.root.locator(".qdq-foot button", has_text="Stop")


def _shown_and_stopped(bench, label):
    """Return what is wrong with a work that goes on, and with its stop."""
    foot, found, seen = bench.root.locator(".qdq-foot"), [], set()
    if label not in foot.inner_text():
        found.append(f"the page says {foot.inner_text()!r}, the work is {label!r}")
    end = time.monotonic() + PATIENCE
    while len(seen) < 2 and _stop(bench).is_visible() and time.monotonic() < end:
        seen.add((foot.inner_text(), foot.locator(".progress-bar").first.get_attribute("style")))
        bench.page.wait_for_timeout(250)
    if len(seen) < 2 and label not in NO_PROGRESS:
        found.append(f"the progress stands still: {seen}")
    if _stop(bench).is_visible():
        _stop(bench).click()
    bench.wait_until("wb.jobs.current is None")
    bench.wait_for(lambda: not _stop(bench).is_visible(), "Stop is gone")
    return found


def _shown_as_done(bench, work):
    """Return what is wrong with a work that was over when the page was there."""
    if work != "export":
        return ["it was over before the page was there"]
    bench.open("Export")
    bench.root.get_by_text("erified: reloaded.onnx").first.wait_for()
    return []


def run(works=tuple(WORKS)):
    """Return what went wrong, by work."""
    problems = {}
    with lab(cells=2) as opened:
        notebook = opened("one.ipynb")
        prepare(notebook)
        bench = shown_bench(notebook, 1, BENCH)
        for work in works:
            if work != "calibration" and bench.value("wb.calibration is None") == "True":
                bench.notebook.ask("_ = wb.calibrate(steps=2)")
            bench, wrong = reload_during(bench, work, WORKS[work])
            if wrong:
                problems[work] = wrong
    return problems


if __name__ == "__main__":
    wrong = run(sys.argv[1:] or tuple(WORKS))
    print(wrong or "no problem")
    sys.exit(1 if wrong else 0)
