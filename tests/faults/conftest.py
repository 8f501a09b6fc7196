"""A disk that can be full or read-only."""

import pytest
from faults.small_disk import SmallDisk


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    disk = SmallDisk(tmp_path_factory.mktemp("disk"))
    why_not = disk.mount()
    if why_not:
        pytest.skip(f"a disk in memory cannot be mounted here: {why_not}")
    yield disk
    disk.unmount()
