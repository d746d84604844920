"""What a run leaves behind in outputs/: one room writes it, and all others read it through this one.

In: what the trainer logs. Out: run.json, logs and evals.parquet (store.py), tidy tables (read.py), how far a run is
(run_state.py), and what it ran on (machine.py).
"""
