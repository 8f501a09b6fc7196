"""The certificate of an exported file as one self-contained HTML page."""

from __future__ import annotations

import pathlib
from typing import Any

from qdq_workbench._files import write_text
from qdq_workbench.verification.certificate import Certificate

_TEMPLATE = "certificate.html.j2"


def write_certificate_page(certificate: Certificate, path: str | pathlib.Path) -> pathlib.Path:
    """Write a certificate as an HTML page that needs no network; names in it are escaped.

    Args:
        certificate: The certificate.
        path: Path of the page.

    Returns:
        The path.

    Raises:
        OutputPathError: If the page cannot be written.
    """
    import jinja2

    loader = jinja2.PackageLoader("qdq_workbench.report", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.get_template(_TEMPLATE).render(certificate=certificate, lsb=_histogram(certificate))
    return write_text(path, page)


def _histogram(certificate: Certificate) -> list[dict[str, Any]]:
    """Return the rows of the histogram: integers equal to those of Keras, and one step away, with count and share."""
    elements, off = (int(certificate.lsb.get(name, 0)) for name in ("elements", "off_by_one"))
    if not elements:
        return []
    rows = (("equal", elements - off), ("one step", off))
    return [{"label": label, "count": count, "share": 100.0 * count / elements} for label, count in rows]
