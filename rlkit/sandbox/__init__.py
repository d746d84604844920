"""The sandbox: where programs, and scorers that evaluate text, run without reaching anything of ours.

Outside: programs.py is what is asked for, levels.py chooses the isolation and starts it. Inside, standard library only:
jail.py forks, inside.py runs programs, testing.py their tests. reading.py and plain.py
are in both.
"""
