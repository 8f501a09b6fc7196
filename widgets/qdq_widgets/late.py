"""What a page asks for where it missed messages: the state of a widget as it is now; see `widgets/src/late.ts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets


def tell_again(content: Mapping[str, Any]) -> Any:
    """Send a widget's whole state to a page that asks for it, and return the widget; None where there is none.

    Args:
        content: The page's message.
    """
    widget = widgets.widget_serialization["from_json"](content.get("model"), None)
    if not isinstance(widget, widgets.Widget):  # closed meanwhile
        return None
    widget.send_state(set(widget.keys) - {"_esm", "_css"})  # the scripts are there: megabytes for a plotly figure
    return widget
