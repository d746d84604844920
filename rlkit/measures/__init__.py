"""What a study shows: tables of its runs, without pictures.

In: the tables of `rlkit.read` and `rlkit.read_evals`. Out: ends and curves (tables.py), learning (learning.py),
differences between cells (comparisons.py), the best allocation (allocation.py), and an analysis as text (summary.py).
"""
