"""What all tests share: the Keras backend, quiet TensorFlow, golden files, optional data beside the repository."""

import gc
import os
import signal

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# One thread per pool: the tests run on several workers, and tiny models gain nothing from more.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# The same kernels on every processor. By default TensorFlow takes oneDNN's only from AVX512 on; without them it has no
# convolutions with channels first, and two forms of one product may differ in their last bits.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import fresh_process
import hypothesis
import leaks
import left_out
import old_graphs
import pytest
import seeds
from ordered_cases import refuse_sets
from project import ROOT
from short_turns import ShortTurns
from slow_first import slow_first
from untuned_data import UntunedData

# A shell that starts a command in the background lets it ignore Ctrl-C, which several tests send to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Python's collector looks through everything that TensorFlow, Keras and the test's models hold each time 700 more
# objects were made: a fifth of the time of a test that traces. What is imported stays, so it is left out.
gc.set_threshold(100_000, 10, 10)


EXHAUSTIVE = left_out.left_out()


@pytest.hookimpl(tryfirst=True)  # before pytest looks at `-m exhaustive`
def pytest_collection_modifyitems(config, items):
    further = [item for item in items if item.nodeid in EXHAUSTIVE]
    for item in further:
        item.add_marker("exhaustive")
    if not config.getoption("--exhaustive") and not any("::" in argument for argument in config.args):
        config.hook.pytest_deselected(items=further)
        items[:] = [item for item in items if item.nodeid not in EXHAUSTIVE]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    workers = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    items[:] = seeds.another_order(items, config.getoption("--seed"))
    items[:] = slow_first(items, lambda item: item.path in slow, lambda item: str(item.path.parent), workers)


def pytest_generate_tests(metafunc):
    refuse_sets(metafunc)


def pytest_collection_finish():
    gc.freeze()


def pytest_configure(config):
    config.pluginmanager.register(seeds.Seeds(config.getoption("--seed")))
    config.pluginmanager.register(leaks.Leaks())
    config.pluginmanager.register(old_graphs.OldGraphs())
    config.pluginmanager.register(UntunedData())
    config.pluginmanager.register(ShortTurns())


def pytest_addoption(parser):
    parser.addoption(
        "--seed",
        type=int,
        default=0,
        help="another number gives every test other random numbers, every file another order",
    )
    parser.addoption("--exhaustive", action="store_true", help="run what tests/left_out.py leaves out, too")
    parser.addoption("--regen-golden", action="store_true", help="rewrite tests/golden instead of comparing")


@pytest.fixture
def golden(request):
    """Compare text with tests/golden/<name>, or rewrite that file under --regen-golden."""

    def check(name, text):
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--regen-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def own_registry(monkeypatch):
    """Wrappers that a test defines are forgotten behind it: they would serve every layer of that class name."""
    from qdq_workbench.placement import defaults
    from qdq_workbench.wrappers import base

    monkeypatch.setattr(defaults, "_DEFAULTS", dict(defaults._DEFAULTS))
    monkeypatch.setattr(base, "_WRAPPERS", dict(base._WRAPPERS))


@pytest.fixture(scope="module")
def _built():
    return {}


@pytest.fixture
def built_once(_built, monkeypatch):
    """Let verification build the float32 file of a model, with which it compares others, once in a module.

    For tests that change files, not models.
    """
    from qdq_workbench.verification import verify

    build = verify.build_proto

    def once(q_model, target, *, half=None, conversions=None, **options):
        if half is not None:
            return build(q_model, target, half=half, conversions=conversions, **options)
        key = (id(q_model), *options.items())
        if key not in _built:
            _built[key] = (q_model, build(q_model, target, **options))
        return _built[key][1]

    monkeypatch.setattr(verify, "build_proto", once)


@pytest.fixture(scope="session")
def fresh():
    """Run code in processes of its own in which Keras and TensorFlow are imported, and nothing of this package."""
    with fresh_process.server("keras") as running:
        yield running


@pytest.fixture(scope="session")
def shared():
    """Return the folder of optional data and oracles beside the repository; tests that need it skip without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the data folder ../shared, which is not beside this checkout")
    return folder
