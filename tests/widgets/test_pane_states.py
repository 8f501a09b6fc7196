"""What a pane remembers is saved, restored and drawn: shown on the pane of docs/extending.md, registered by its row."""

import json
import re

import pytest
from project import ROOT
from small_benches import tiny_model

from qdq_widgets import Workbench, panes
from qdq_widgets.errors import BenchError

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


@pytest.fixture
def notes(monkeypatch):
    """The documented pane, as the one file in `panes` and the one row in its table that the page asks for."""
    names = {}
    exec(re.search(r"^```python\n(import ipywidgets.*?)^```$", PAGE, re.MULTILINE | re.DOTALL).group(1), names)
    monkeypatch.setattr(panes, "SIDE", (*panes.SIDE, names["NotesPane"]))
    return names["NotesPane"]


@pytest.fixture
def bench():
    return Workbench(tiny_model())


def test_the_pane_of_the_page_is_drawn_saved_and_restored(bench, notes, tmp_path):
    pane = bench.view.pane(notes)
    assert "Notes" in bench.view.side.widget.titles
    assert pane.widget in bench.view.side.widget.children
    bench.view.side.open(notes)
    pane.text.value = "the head stays in float"
    bench.save(tmp_path / "bench")

    restored = Workbench.load(tmp_path / "bench")
    assert restored.view.pane(notes).text.value == ""  # out of sight: not drawn yet
    restored.view.side.open(notes)
    assert restored.view.pane(notes).text.value == "the head stays in float"

    pane.text.value = "another thought"
    bench.load(tmp_path / "bench")
    assert pane.text.value == "the head stays in float"  # in sight: drawn at once


def test_a_bench_without_the_pane_keeps_its_values_and_a_new_bench_takes_them_along(bench, tmp_path):
    bench.pane_states.remember("NotesPane", text="read me")
    bench.save(tmp_path / "first")
    Workbench.load(tmp_path / "first").save(tmp_path / "second")
    assert Workbench.load(tmp_path / "second").pane_states.of("NotesPane") == {"text": "read me"}

    following = Workbench(bench.model)
    following.continue_from(bench)
    assert following.pane_states.of("NotesPane") == {"text": "read me"}
    bench.pane_states.remember("NotesPane", text="changed")
    assert following.pane_states.of("NotesPane") == {"text": "read me"}


def test_values_are_those_that_a_file_gives_back(bench):
    heard = []
    bench.subscribe(heard.append)
    bench.pane_states.remember("NotesPane", numbers=(1, 2))
    bench.pane_states.remember("NotesPane", numbers=[1, 2])
    assert heard == ["panes"]  # the second one is no news
    assert bench.pane_states.of("NotesPane") == {"numbers": [1, 2]}
    bench.pane_states.of("NotesPane")["numbers"].append(3)  # a copy
    with pytest.raises(BenchError, match=r"what JSON can hold.*Received: pane='NotesPane'"):
        bench.pane_states.remember("NotesPane", numbers={1, 2})
    assert bench.pane_states.of("NotesPane") == {"numbers": [1, 2]}


def test_a_pane_remembers_what_it_names(bench, notes):
    pane = bench.view.pane(notes)
    assert pane.remembered == {"text": ""}
    with pytest.raises(BenchError, match=r"NotesPane remembers \['text'\]. Received: \['tekst'\]"):
        pane.remember(tekst="")


def test_folders_without_panes_are_read_and_broken_ones_are_named(bench, tmp_path):
    bench.pane_states.remember("NotesPane", text="mine")
    file = bench.save(tmp_path) / "bench.json"
    data = json.loads(file.read_text())
    for broken in (7, [1], {"NotesPane": 7}, {"NotesPane": "text"}):
        file.write_text(json.dumps({**data, "panes": broken}))
        with pytest.raises(BenchError, match="bench in the folder is damaged"):
            bench.load(tmp_path)
        assert bench.pane_states.of("NotesPane") == {"text": "mine"}
    del data["panes"]
    file.write_text(json.dumps(data))
    bench.load(tmp_path)
    assert bench.pane_states.of("NotesPane") == {}
