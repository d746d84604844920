"""The sandbox for programs and for scorers that evaluate text: programs.py and levels.py are outside; jail.py,
inside.py and testing.py inside; reading.py and plain.py in both."""
