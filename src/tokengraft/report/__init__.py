"""An adaptation as one page that needs no network: `report_page`."""

from tokengraft.report.page import report_page

__all__ = ["report_page"]
