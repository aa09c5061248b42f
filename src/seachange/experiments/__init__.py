"""Experiments: one file each, runnable from the command line."""
