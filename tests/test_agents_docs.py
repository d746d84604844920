"""The examples of the page on agents, and the README's, run as printed; the README's solves what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(code: str) -> dict[str, Any]:
    """What the code has defined."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(code, names)
    return names


def test_an_environment_of_ones_own_runs_as_printed():
    (example,) = (block for block in blocks("docs/how-to/agents.md") if "Thermostat" in block)
    losses = run(example)["losses"]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


@pytest.mark.slow(reason="trains for a minute")
@pytest.mark.parametrize("page", ["README.md", "docs/how-to/agents.md"])
def test_the_printed_training_solves_held_out_equations(page):
    (example,) = (block for block in blocks(page) if "NoisyAgent" in block)
    made = run(f"import rlkit\n{example}")
    solved = made["trainer"].test_inference(made["env"].problems("test", 100, 1))
    assert sum(e["success"] for e in solved) >= 80
