"""A trained policy behind HTTP.

In: a run's folder or a model, then problems (POST /solve). Out: a solution and the chain of actions that led to it.
"""

MAX_CONCURRENT, TIMEOUT = 16, 60.0  # episodes at a time, and seconds of one, where nothing else is asked for
