"""Past one GPU: the same RunConfig on verl and Ray.

In: a RunConfig, which config.py turns into verl's and checks.py may refuse. Out: the same run folder as a local run's
(results.py). agent_loop, reward, answers, value_head, replay and plugins run inside verl's processes; verl, ray and
torch are imported inside functions.
"""
