"""Acting in an environment as a source of tasks; the rewards come from the environment itself."""
