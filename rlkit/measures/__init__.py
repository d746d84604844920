"""What a study shows: tables of its runs, without pictures.

In: the tables of `rlkit.read` and `rlkit.read_evals`. Out: ends, curves and an analysis as text (summary.py), how cells
differ and how they learn (comparisons.py), and the laws of a study (fits.py).
"""
