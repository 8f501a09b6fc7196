"""What all panes are made of: a pane that is built once, its errors, its memory; tables, pickers, numbers as texts."""

from types import SimpleNamespace

import ipywidgets as widgets
import pytest

from qdq_widgets.errors import BenchError, BenchStoppedError
from qdq_widgets.events import Events
from qdq_widgets.pane import (
    Pane,
    button,
    duration,
    file_name,
    filled_columns,
    kibibytes,
    row,
    set_options,
    table_html,
    text_html,
)
from qdq_widgets.pane_states import PaneStates


class Counting(Pane):
    """A pane with one widget, which counts how often it is built."""

    remembers = {"marks": [], "name": "none"}  # noqa: RUF012 - as the page on extending writes it
    built = 0

    def build(self):
        self.built += 1
        self.text = widgets.HTML()
        return [self.text]


class ErrorsFirst(Pane):
    def build(self):
        return [self.errors.widget, widgets.HTML()]


class Failing(Pane):
    tries = 0

    def build(self):
        self.tries += 1
        raise RuntimeError("no widgets")


def bench():
    started = []
    jobs = SimpleNamespace(start=lambda work, on_error: started.append((work, on_error)), started=started)
    return SimpleNamespace(pane_states=PaneStates(Events()), jobs=jobs)


# ---------------------------------------------------------------------- panes


def test_a_pane_is_built_once_with_its_errors_at_the_end():
    pane = Counting(bench())
    assert (pane.widget.children, pane.is_built) == ((), False)
    pane.ensure_built()
    pane.ensure_built()
    assert pane.widget.children == (pane.text, pane.errors.widget)
    assert (pane.built, pane.is_built) == (1, True)


def test_a_pane_may_say_where_its_errors_stand():
    pane = ErrorsFirst(bench())
    pane.ensure_built()
    assert pane.widget.children[0] is pane.errors.widget
    assert len(pane.widget.children) == 2


def test_a_pane_that_could_not_be_built_shows_its_error_and_is_not_tried_again():
    pane = Failing(bench())
    with pytest.raises(RuntimeError, match="no widgets"):
        pane.ensure_built()
    pane.ensure_built()
    assert (pane.tries, pane.is_built, pane.widget.children) == (1, False, (pane.errors.widget,))


def test_a_pane_without_build_says_what_it_lacks():
    class Empty(Pane):
        pass

    with pytest.raises(NotImplementedError, match="Empty must return its widgets from `build`"):
        Empty(bench()).ensure_built()


def test_a_pane_remembers_values_and_hands_out_copies():
    pane = Counting(bench())
    pane.remembered["marks"].append("lost")
    assert pane.remembered == {"marks": [], "name": "none"}
    pane.remember(marks=[1])
    pane.remembered["marks"].append("lost")
    assert pane.remembered == {"marks": [1], "name": "none"}
    pane.bench.pane_states.remember("Counting", gone="of an earlier version")
    assert set(pane.remembered) == {"marks", "name"}
    with pytest.raises(BenchError, match=r"Counting remembers \['marks', 'name'\]. Received: \['a', 'b'\]"):
        pane.remember(b=1, a=2, marks=[3])
    assert pane.remembered["marks"] == [1]


def test_work_in_the_background_clears_the_error_and_shows_its_own_unless_it_was_stopped():
    pane = Counting(bench())
    pane.errors.show(BenchError("an old one"))
    pane.start(work := list)
    ((started, on_error),) = pane.bench.jobs.started
    assert (started, pane.errors.message) == (work, "")
    on_error(BenchStoppedError("Stopped."))
    assert pane.errors.message == ""
    on_error(BenchError("It failed."))
    assert pane.errors.message == "It failed."


# ---------------------------------------------------------------------- building blocks


def test_a_button_calls_without_arguments_and_explains_itself():
    clicks = []
    plain, full = button("Go", lambda: clicks.append(1)), button("", list, icon="undo", style="danger", tooltip="Undo")
    plain.click()
    assert clicks == [1]
    assert (plain.tooltip, plain.button_style, plain.layout.width) == ("Go", "", "auto")
    assert (full.description, full.icon, full.button_style, full.tooltip) == ("", "undo", "danger", "Undo")


def test_a_row_is_wrapped_and_texts_are_no_markup():
    first, second = widgets.HTML(), widgets.HTML()
    assert row(first, second).children == (first, second)
    assert (row(gap="2px").layout.grid_gap, row().layout.flex_flow) == ("2px", "row wrap")
    assert text_html("<b>&", "qdq-muted") == '<div class="qdq-muted">&lt;b&gt;&amp;</div>'


def test_a_table_escapes_its_cells_and_breaks_long_names():
    page = table_html(("val_acc<", ""), [("<i>", 12345678901234)])
    assert "<th>val_<wbr>acc&lt;</th><td></td>" in page
    assert '<td class="qdq-short">&lt;i&gt;</td><td>12345678901234</td>' in page


def test_short_cells_keep_their_line_and_least_columns_are_marked():
    page = table_html(("name", "why"), [("a" * 12, "b" * 13)], least=("why", "name2"))
    assert f'<td class="qdq-short">{"a" * 12}</td><td class="qdq-least">{"b" * 13}</td>' in page
    assert '<th>name</th><th class="qdq-least">why</th>' in page
    assert '<td class="qdq-least qdq-short">x</td>' in table_html(("why",), [("x",)], least=["why"])


def test_a_table_without_rows_is_its_text():
    assert table_html(("a",), iter(()), empty="<none>") == '<div class="qdq-muted">&lt;none&gt;</div>'
    assert "<table" in table_html(iter(("a",)), iter([("b",)]), empty="none")


def test_columns_of_empty_cells_are_left_out_and_zeros_are_no_empty_cells():
    head = ("a", "b", "c", "d")
    assert filled_columns(head, [("", None, 0, ""), (None, "", "", "x")]) == (["c", "d"], [[0, ""], ["", "x"]])
    assert filled_columns(head, []) == ([], [])


def test_a_picker_keeps_its_value_while_it_is_an_option():
    picker = widgets.Dropdown(options=["a", "b"], value="b")
    seen = []
    picker.observe(lambda change: seen.append(change["new"]), "value")
    set_options(picker, ["a", "b"])
    assert seen == []
    set_options(picker, ["c", "b"])
    assert picker.value == "b"
    set_options(picker, [("See", "c"), ("Dee", "d")])
    assert picker.value == "c"
    set_options(picker, [("See", "c"), ("Dee", "d")], "d")
    assert picker.value == "d"
    set_options(picker, [("See", "c"), ("Dee", "d")], "gone")
    assert picker.value == "c"
    set_options(picker, [("All", ""), ("Dee", "d")], "d")
    set_options(picker, [("All", ""), ("Dee", "d")], "")
    assert picker.value == ""
    set_options(picker, [])
    assert (picker.options, picker.value) == ((), None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my net/v1.0", "my_net_v1.0"),
        ("..hidden_", "hidden"),
        ("größe", "größe"),
        ("///", "model"),
        ("", "model"),
        ("a" * 80, "a" * 60),
        ("a:*?b", "a_b"),
    ],
)
def test_a_name_becomes_that_of_a_file(text, name):
    assert file_name(text) == name


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1 s"), (1.6, "2 s"), (59.4, "59 s"), (60, "1 min"), (3599, "60 min"), (3600, "1.0 h"), (9000, "2.5 h")],
)
def test_durations_have_the_unit_that_people_use(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0.0 KiB"), (1024, "1.0 KiB"), (1024**2 - 1, "1024.0 KiB"), (1024**2, "1.0 MiB")]
)
def test_sizes_have_the_unit_that_fits(size, text):
    assert kibibytes(size) == text
