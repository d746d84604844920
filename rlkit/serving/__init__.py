"""A trained policy behind HTTP: POST a problem, get its solution and the chain of actions that led to it."""
