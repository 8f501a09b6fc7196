"""The present state of a widget for a page that missed messages; see `widgets/src/late.ts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets


def tell_again(content: Mapping[str, Any]) -> Any:
    """Send the whole state of the widget that a page's message names, and return the widget; None if it is closed."""
    widget = widgets.widget_serialization["from_json"](content.get("model"), None)
    if not isinstance(widget, widgets.Widget):  # closed meanwhile
        return None
    widget.send_state(set(widget.keys) - {"_esm", "_css"})  # the page has the scripts
    return widget
