"""The documentation builds without a warning (links, anchors, names of the reference), and holds what it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlkit.laws import laws

ROOT = Path(__file__).parent.parent
pytest.importorskip("mkdocs", reason="needs pip install -e '.[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_law_key_and_command_is_documented_and_the_reference_has_the_docstrings(site):
    texts = {
        name: (site / f"{name}.html").read_text() for name in ("concepts/laws", "reference/configuration")
    }
    built_in = [name for name in laws if laws[name].function.__module__ == "rlkit.laws.forms"]
    assert [name for name in built_in if f"<code>{name}</code>" not in texts["concepts/laws"]] == []
    assert "<code>actor.optim.lr</code>" in texts["reference/configuration"]
    commands = (site / "reference" / "cli.html").read_text()
    for command, option in {"rlkit figures": "--venue", "rlkit data check": "--held-out"}.items():
        assert f">{command}<" in commands and f"<code>{option}</code>" in commands
    for page, words in {"runs": "The RunConfig of a YAML file", "figures": "legend beside the axes"}.items():
        assert words in (site / "reference" / f"{page}.html").read_text()
