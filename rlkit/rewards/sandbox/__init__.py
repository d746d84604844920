"""Running untrusted programs: levels.py chooses the isolation, client.py asks for a program to be run,
jail.py, roles.py and values.py are what runs inside (standard library only, nothing of the grader's)."""
