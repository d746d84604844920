"""Acting in an environment, turn by turn, as a source of tasks; its rewards come from the environment itself."""
