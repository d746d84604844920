"""Running untrusted programs: levels.py chooses the isolation, jail.py keeps a process in it, programs.py is what is
asked for; inside.py, testing.py and plain.py run inside (standard library only, nothing of the grader's)."""
