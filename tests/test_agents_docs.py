"""The examples of the page on agents, and the README's, run as printed; the README's solves what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_an_environment_of_ones_own_runs_as_printed():
    (example,) = (block for block in blocks("docs/how-to/agents.md") if "Thermostat" in block)
    assert float(run(example + "\nprint(sum(losses[-5:]) / sum(losses[:5]))")) < 0.7


@pytest.mark.slow(reason="trains for a minute")
@pytest.mark.parametrize("page", ["README.md", "docs/how-to/agents.md"])
def test_the_printed_training_solves_held_out_equations(page):
    (example,) = (block for block in blocks(page) if "NoisyAgent" in block)
    check = 'solved = trainer.test_inference(env.problems("test", 100, 1))\nprint(sum(e["success"] for e in solved))'
    assert int(run(f"import rlkit\n{example}\n{check}")) >= 80
