"""The report: one HTML page."""
