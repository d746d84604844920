"""Studies: a file of parameters becomes runs, each trained through a notebook, and an analysis.

In: a params file with a grid and seeds (file.py). Out: the plan of its runs (plan.py), executed here or over Slurm
(executors.py), in outputs/<study>; status.py prints how far they are.
"""
