"""Evaluation: how good a policy is on tasks that it was not trained on.

In: a policy, a sampler, a router and tasks. Out: a row a sample (samples.py), pass@k with intervals (passk.py).
"""
