"""The names others build on, and what importing them costs."""

import subprocess
import sys

import pytest

import rlkit

HEAVY = (
    "torch",
    "transformers",
    "verl",
    "vllm",
    "ray",
    "peft",
    "datasets",
    "papermill",
    "matplotlib",
    "pandas",
    "scipy",
)


def loaded_after(statement: str) -> set[str]:
    """The heavy packages that a fresh interpreter has loaded after `statement`."""
    code = f"import sys\n{statement}\nprint('LOADED', *(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    line = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert line, done.stderr
    return set(line[-1].split()[1:])


def test_the_public_names_are_these():
    assert set(rlkit.__all__) == {
        "ActionResult",
        "AgenticTrainer",
        "BaseAgent",
        "BaseEnvironment",
        "__version__",
        "attach",
        "backtest",
        "compare",
        "evaluate",
        "fit",
        "launch",
        "law",
        "law_explorer",
        "load",
        "panel",
        "pass_at_k",
        "plan",
        "read",
        "read_evals",
        "recover",
        "sample_browser",
        "score",
        "study",
        "train",
    }
    assert set(rlkit.__all__) <= set(dir(rlkit))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="trian"):
        _ = rlkit.trian


def test_importing_rlkit_loads_nothing_heavy():
    assert loaded_after("import rlkit") == set()


HELP = """
from typer.testing import CliRunner
from rlkit.cli import app
result = CliRunner().invoke(app, ["--help"])
assert result.exit_code == 0 and "quickstart" in result.output, result.output
"""


def test_help_loads_nothing_heavy():
    assert loaded_after(HELP) == set()


LIGHT = (
    "config", "results.store", "results.read", "studies.study", "studies.notebook", "studies.report", "figures", "cli",
    "domains", "laws", "sizing.doctor",
)  # fmt: skip


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_import_no_torch(module):
    assert loaded_after(f"import rlkit.{module}") & {"torch", "transformers", "verl", "vllm", "ray"} == set()
