"""Agents: who acts in an environment, and training on the episodes they played.

In: an environment and its problems. Out: episodes as Trajectory (agents.py: scripted agents and yours), and a
model trained on them offline (trainer.py).
"""

from rlkit.agents.agents import BaseAgent, ExpertAgent, NoisyAgent, RandomAgent, State, run_episodes

__all__ = ["BaseAgent", "ExpertAgent", "NoisyAgent", "RandomAgent", "State", "run_episodes"]
