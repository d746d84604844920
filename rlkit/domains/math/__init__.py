"""Mathematics: generated problems (tasks.py) and the equivalence of answers (compare.py)."""
