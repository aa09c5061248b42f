"""Threads, processes and progress: the same map-reduce everywhere."""

from seachange.engine.local import cores, map_in_order, one_thread
from seachange.engine.progress import Stage, listening, stage
from seachange.engine.shared_work import SharedWork

__all__ = ["SharedWork", "Stage", "cores", "listening", "map_in_order", "one_thread", "stage"]
