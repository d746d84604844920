"""A trained policy behind HTTP: POST a problem, get its solution and the chain of actions that led to it.

All live episodes share sampler calls, equal requests share one episode (decoding is greedy, so answers are
reproducible) and finished ones are cached. Not covered: several processes, or several policies.
"""
