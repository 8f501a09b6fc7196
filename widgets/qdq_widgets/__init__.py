"""The notebook front end of QDQ Workbench: Jupyter widgets on the public names of `qdq_workbench`.

    from qdq_widgets import Workbench

    wb = Workbench(model, train_data=(x, y), validation_data=(x_val, y_val))
    wb                                  # in JupyterLab: the bench
    wb.toggle("conv1", "input")         # and the same in a script

Importing this package imports neither TensorFlow nor a widget library: names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "BenchBusyError": "errors",
    "BenchError": "errors",
    "GraphComparison": "graph_comparison",
    "GraphView": "graph_view",
    "NetronServer": "netron_server",
    "Workbench": "workbench",
    "write_graph_page": "graph_page",
    "write_graph_picture": "picture",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the names are strings, taken from the table above


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"qdq_widgets has no attribute {name!r}. It has {', '.join(_HOMES)}.")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    # From here on Python finds the name itself: it calls this function for missing names only.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
