"""The sandbox: programs.py and levels.py are outside; jail.py, inside.py and testing.py inside; the others in both."""
