"""The links of the README lead somewhere, and the example of a new domain works as printed."""

import re
import subprocess
import sys
from pathlib import Path

from rlkit.config import load
from rlkit.data import TaskStream, held_out

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXTEND = (ROOT / "docs" / "how-to" / "extend.md").read_text()


def test_the_example_domain_makes_and_grades_tasks():
    blocks = re.findall(r"```python\n(.*?)```", EXTEND, re.DOTALL)
    (example,) = (block for block in blocks if "@sources.register" in block)
    check = """
from rlkit.domains import scorers, sources
task = sources.parse("parity").task(3)
assert scorers["parity"]("no", task.ground_truth, {}).correct is True
assert scorers["parity"]("yes", task.ground_truth, {}).value == 0.0
"""
    done = subprocess.run([sys.executable, "-c", example + check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_file_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    local = [link for link in links if not link.startswith("http")]
    assert local
    missing = [link for link in local if not (ROOT / link).exists()]
    assert missing == []


def test_the_example_study_can_be_trained(tmp_path):
    (example,) = re.findall(r"```yaml\n(study:.*?)```", README, re.DOTALL)
    (tmp_path / "sizes.yaml").write_text(example)
    config = load(tmp_path / "sizes.yaml")
    tests = held_out(config)
    TaskStream(config, tests).check_prompts(tests)
    assert len(tests) == config.evaluation.size


def test_the_readme_is_short():
    assert len(README.split()) <= 1500
