"""Logic: zebra, ordering and graph puzzles."""
