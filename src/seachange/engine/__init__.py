"""Threads, processes and progress: the same map-reduce everywhere."""

from seachange.engine.local import cores, made_ahead, map_in_order, one_thread
from seachange.engine.progress import Stage, listening, stage

__all__ = ["Stage", "cores", "listening", "made_ahead", "map_in_order", "one_thread", "stage"]
