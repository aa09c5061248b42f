"""From logs to files: one file a format."""
