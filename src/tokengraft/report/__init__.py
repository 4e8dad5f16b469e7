"""`report_page`: the report of an adaptation as one HTML page that needs no network."""

from tokengraft.report.page import report_page

__all__ = ["report_page"]
