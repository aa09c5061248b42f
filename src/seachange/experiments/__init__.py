"""Experiments, one file each; ``seachange replicate`` runs them."""
