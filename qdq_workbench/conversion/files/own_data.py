"""Check that an HDF5 file holds its data itself.

The format lets a file refer to data in another one: external links, datasets with external storage, virtual datasets.
Reading such a file of unknown origin could read any other file. A dataset may also claim a size without storing
anything.
"""

from __future__ import annotations

from typing import Any

import h5py

from qdq_workbench.errors import FileAccessError

_COMPRESSION = 1100  # deflate stores at most 1,032 bytes in one
_FREE = 1 << 20


def check_own_data(opened: h5py.File, path: object) -> None:
    """Raise FileAccessError for an HDF5 file with data in another file, or that claims more data than it stores."""
    waiting: list[h5py.Group] = [opened]
    seen = set()
    while waiting:
        group = waiting.pop()
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise _refusal(f"{group.name}/{name}", f"is a link into the file {link.filename!r}", path)
            if isinstance(link, h5py.SoftLink):
                continue  # its target is in this file, and is visited too
            item = group[name]
            if isinstance(item, h5py.Dataset):
                _check_dataset(item, path)
            elif isinstance(item, h5py.Group) and (place := h5py.h5o.get_info(item.id).addr) not in seen:
                seen.add(place)  # hard links may form circles
                waiting.append(item)


def _check_dataset(dataset: Any, path: object) -> None:
    if dataset.external:
        raise _refusal(dataset.name, f"is stored in the file {dataset.external[0][0]!r}", path)
    if dataset.is_virtual:
        raise _refusal(dataset.name, "is put together of other datasets", path)
    stored = dataset.id.get_storage_size()
    if dataset.nbytes > _FREE + _COMPRESSION * stored:
        raise _refusal(dataset.name, f"claims {dataset.nbytes:,} bytes and stores {stored:,}", path)


def _refusal(name: str, what: str, path: object) -> FileAccessError:
    return FileAccessError(
        f"The HDF5 file does not hold its own data: {name.replace('//', '/')!r} {what}. Such a file can read others of "
        f"this machine. Save it again where it was made, with plain datasets. Received: path={str(path)!r}"
    )
