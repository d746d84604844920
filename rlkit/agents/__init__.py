"""Agents: who acts in an environment (scripted agents, language models), and training on the episodes they played."""

from rlkit.agents.agents import BaseAgent, ExpertAgent, NoisyAgent, RandomAgent, State, play, run_episodes

__all__ = ["BaseAgent", "ExpertAgent", "NoisyAgent", "RandomAgent", "State", "play", "run_episodes"]
