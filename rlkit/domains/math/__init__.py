"""Mathematics: generated problems (tasks.py) and the equivalence of answers (scoring.py)."""
