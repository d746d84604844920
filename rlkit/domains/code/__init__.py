"""Programs: run in the sandbox against tests (scoring.py)."""
