"""The same map-reduce wherever the chunks are."""

from seachange.engine.local import map_in_order
from seachange.engine.progress import Stage, listening, stage
from seachange.engine.shared_work import SharedWork
from seachange.engine.threads import cores, one_thread

__all__ = ["SharedWork", "Stage", "cores", "listening", "map_in_order", "one_thread", "stage"]
