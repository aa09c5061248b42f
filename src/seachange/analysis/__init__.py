"""The numbers behind the report, ``seachange states`` and ``seachange evaluate``."""
