"""The report as one HTML file that needs nothing else: no network, no fonts, no scripts from elsewhere."""

from seachange.report.page.rendering import page_of as page_of

__all__ = ["page_of"]
