"""The sandbox: where programs and scorers that evaluate text run.

In: code with its input or tests (programs.py). Out: what it printed or returned, or why not. levels.py chooses the
isolation, limits.py says what a program may use; jail.py, inside.py and testing.py run inside it, plain.py and
reading.py on both sides.
"""
