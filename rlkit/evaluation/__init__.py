"""Evaluation: held-out pass rates with intervals, one row a sample kept."""
