"""`kill -9` at random moments of whatever writes files; `python tests/faults/kills.py` kills more often."""

import pytest
from faults import kills


@pytest.mark.slow  # TensorFlow is imported by a process that forks those which are killed
def test_no_file_is_lost_or_half_written():
    kinds = ("save .keras", "save .h5", "save weights", "save folder", "export")
    done, lost = kills.run(count=len(kinds), seed=0, kinds=kinds)
    assert lost == []
    assert [done[kind] for kind in kinds] == [1] * len(kinds)
