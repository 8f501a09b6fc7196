"""What a progress bar shows, and who is told in its place."""

from qdq_workbench._progress import shown_progress, shown_while_held


def test_a_bar_shows_what_is_done_of_how_much(capsys):
    with shown_progress(None, "Work", verbose=True) as show:
        show(2, 3, "layer")
    assert "Work: layer" in (shown := capsys.readouterr().out)
    assert "2/3" in shown
    with shown_progress(None, "Work", verbose=True) as show:
        show(2, 0, "")  # of an unknown number
    assert "Work " in (shown := capsys.readouterr().out)
    assert "2/?" in shown


def test_a_function_is_told_in_place_of_a_bar_and_nobody_where_it_is_to_be_quiet(capsys):
    told = []
    for progress, verbose in ((lambda *what: told.append(what), True), (None, False)):
        with shown_while_held(progress, None, "Work", verbose=verbose) as (show, stopped):
            show(1, 2, "layer")
            assert stopped() is False
    assert told == [(1, 2, "layer")]
    assert capsys.readouterr().out == ""
