"""Readers of public data sets, one module each."""
