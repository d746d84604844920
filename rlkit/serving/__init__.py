"""A trained policy behind HTTP.

In: a run's folder or a model, then problems (POST /solve). Out: a solution and the chain of actions that led to it.
"""
