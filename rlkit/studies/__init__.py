"""Studies: a file of parameters becomes runs, each trained through a notebook, and an analysis.

In: a params file with a grid and seeds (file.py). Out: the plan of its runs (plan.py), executed here or over Slurm
(executors.py), in outputs/<study>; dry_run.py prints what is to come, status.py how far it is.
"""
