"""A shop window whose visitors change their mind: the world of ``seachange demo``."""
