"""Tables fit into a terminal, and lose nothing."""

from qdq_workbench._tables import WIDTH, html_table, text_table, wrapped


def test_short_tables_are_as_wide_as_their_texts():
    assert text_table(("a", "why"), [("one", "x"), ("2", "yes")]).splitlines() == [
        "a    why",
        "---  ---",
        "one  x",
        "2    yes",
    ]


def test_long_texts_go_on_below_and_nothing_is_lost():
    name, reason = "block/" * 20 + "conv", "because of " * 30
    text = text_table(("layer", "tensor", "why"), [(name, name.upper(), reason)])
    assert max(map(len, text.splitlines())) <= WIDTH
    columns = [[], [], []]
    widths = [len(dashes) for dashes in text.splitlines()[1].split()]
    for line in text.splitlines()[2:]:
        start = 0
        for column, width in zip(columns, widths, strict=True):
            column.append(line[start : start + width].strip())
            start += width + 2
    assert "".join(columns[0]) == name
    assert "".join(columns[1]) == name.upper()
    assert " ".join(filter(None, columns[2])) == reason.strip()


def test_names_with_hyphens_stay_whole_where_they_fit():
    (_, _, *lines) = text_table(("a", "why"), [("x", "leave-in-float " * 20)]).splitlines()
    assert {word for line in lines for word in line.split()} == {"x", "leave-in-float"}


def test_many_columns_become_as_narrow_as_one_letter():
    text = text_table([f"name {number}" for number in range(31)], [["some"] * 31])
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_table_without_rows_has_a_head():
    assert text_table(("layer", "why"), []) == "layer  why\n-----  ---"


def test_a_cell_may_have_several_lines():
    assert text_table(("a", "why"), [("x", "one\nfix: two")]).splitlines()[2:] == ["x  one", "   fix: two"]


def test_lines_of_text_are_wrapped_with_their_indent():
    assert wrapped("  short") == "  short"
    lines = wrapped("  " + "word " * 40).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line.startswith("  word") for line in lines] == [True, False]
    assert lines[1].startswith("    word")


def test_html_is_escaped():
    assert "<script>" not in html_table(("<b>",), [("<script>",)])
