"""Past one GPU: the same RunConfig on verl and Ray.

agent_loop, reward, answers, value_head, replay and plugins run inside verl's processes. verl, ray and torch are
imported inside functions.
"""
