"""The same map-reduce wherever the chunks are."""

from seachange.engine.local import map_in_order

__all__ = ["map_in_order"]
