"""Temporary folders of a bench last as long as their owners."""

import gc

from qdq_widgets.scratch import scratch_folder_of


class Owner:
    pass


def test_a_folder_goes_with_its_owner():
    owner = Owner()
    folder = scratch_folder_of(owner)
    folder.joinpath("file").write_text("held", encoding="utf-8")
    gc.collect()
    assert folder.joinpath("file").read_text(encoding="utf-8") == "held"
    del owner
    gc.collect()
    assert not folder.exists()
