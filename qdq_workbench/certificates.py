"""Certificates: the verification results of a file, identified by its hash, as JSON and as a page."""

from __future__ import annotations

from qdq_workbench.report.certificate_page import write_certificate_page
from qdq_workbench.verification.certificate import Certificate, certify

__all__ = ["Certificate", "certify", "write_certificate_page"]
