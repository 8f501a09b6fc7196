"""The page is loaded again in the middle of each long work: the work goes on, is shown, and can be stopped."""

import sys
import time

from load.lab import lab, prepare, shown_bench

BENCH = """
net = chain(200)
net.compile('adam', 'sparse_categorical_crossentropy', metrics=['accuracy'])
few = np.random.default_rng(0).normal(size=(64, 4, 4, 2)).astype('float32'), np.arange(64) % 3
many = np.repeat(few[0], 256, axis=0), np.repeat(few[1], 256)
wb = Workbench(net, train_data=many, validation_data=many, calibration_data=many[0], target='onnxruntime')
wb
"""
WORKS = {
    "calibration": "wb.calibrate(batch_size=1)",
    "sensitivity": "wb.sensitivity(samples=16384)",
    "fine-tuning": "wb.fine_tune(epochs=1000)",
    "learning the rounding": "wb.correct('learn_rounding', steps=20000)",
    "search": "wb.search(accuracy_floor=0.99, samples=16384)",
    "export": "wb.export('reloaded.onnx', certificate=True)",
}


def reload_during(notebook, bench, index, work, call):
    """Start a work, load the page again, and stop the work there; returns what went wrong."""
    bench.notebook.ask(f"failed = []; _ = wb.jobs.start(lambda: {call}, failed.append)")
    bench.wait_until("wb.jobs.current is not None or failed")
    if bench.value("failed") != "[]":
        return bench, f"{work}: {bench.value('failed')}"
    foot = bench.root.locator(".qdq-foot")
    bench.wait_for(lambda: bool(foot.locator("button", has_text="Stop").is_visible()), "Stop is there")
    started = time.monotonic()
    notebook.save_and_reload()
    again = type(bench)(notebook, index, bench._screenshots)
    seconds = time.monotonic() - started
    if again.value("wb.jobs.current is None") == "True":
        if work == "export" and again.value("wb.exports[-1].path.name") == "reloaded.onnx":
            again.open("Export")
            again.root.get_by_text("erified: reloaded.onnx").first.wait_for()
            return again, ""
        return again, f"{work}: it was over before the page was there ({seconds:.0f} s, {again.value('failed')})"
    found = []
    label = again.value("wb.jobs.current.label")
    foot = again.root.locator(".qdq-foot")
    if label not in foot.inner_text():
        found.append(f"the page says {foot.inner_text()!r}, the work is {label!r}")
    texts = set()
    for _ in range(160):
        texts.add((foot.inner_text(), foot.locator(".progress-bar").first.get_attribute("style")))
        again.page.wait_for_timeout(250)
        if len(texts) > 1:
            break
    if len(texts) == 1 and work != "export":
        found.append(f"the progress stands still: {texts}")
    if again.value("wb.jobs.current is None") == "False":
        foot.locator("button", has_text="Stop").click()
    again.wait_until("wb.jobs.current is None")
    again.wait_for(lambda: label in foot.inner_text() or "Ready" in foot.inner_text(), "the page says that it is over")
    if foot.locator("button", has_text="Stop").is_visible():
        found.append("Stop stays")
    errors = again.value("[type(error).__name__ for error in failed]")
    if errors not in ("[]", "['BenchStoppedError']"):
        found.append(f"it failed: {again.value('failed')}")
    shown = foot.inner_text().strip().replace("\n", " ")
    print(f"{work}: there again in {seconds:.1f} s, stopped, the page says {shown!r}: {'; '.join(found) or 'good'}")
    return again, "; ".join(found)


def run(works=tuple(WORKS)):
    """Return what went wrong, by work."""
    problems = {}
    with lab(cells=2) as opened:
        notebook = opened("one.ipynb")
        prepare(notebook)
        bench = shown_bench(notebook, 1, BENCH)
        for work in works:
            if work not in ("calibration",) and bench.value("wb.calibration is None") == "True":
                bench.notebook.ask("_ = wb.calibrate(steps=2)")
            bench, wrong = reload_during(notebook, bench, 1, work, WORKS[work])
            if wrong:
                problems[work] = wrong
    return problems


if __name__ == "__main__":
    wrong = run(sys.argv[1:] or tuple(WORKS))
    print(wrong or "no problem")
    sys.exit(1 if wrong else 0)
