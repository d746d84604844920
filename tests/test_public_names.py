"""The names others build on, and what importing them costs."""

import subprocess
import sys

import pytest

import rlkit

HEAVY = (
    "torch", "transformers", "verl", "vllm", "ray", "peft", "datasets", "papermill", "matplotlib", "pandas", "pyarrow",
    "scipy", "sympy", "reasoning_gym",
)  # fmt: skip
DATA = "import rlkit.data.stream"
ROUTER = "import rlkit.rewards.worker, rlkit.domains\nrlkit.rewards.Router\nrlkit.domains.resolve('math__x')"
LIGHT = (
    "config", "results.store", "results.read", "studies.study", "studies.notebook", "studies.status", "figures",
    "cli", "domains", "laws", "sizing.doctor",
)  # fmt: skip
HELP = """
from typer.testing import CliRunner
from rlkit.cli import app
result = CliRunner().invoke(app, ["--help"])
assert result.exit_code == 0 and "quickstart" in result.output, result.output
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """The heavy packages that an interpreter has loaded after each statement, one statement after the other."""
    statements = ["import rlkit", DATA, ROUTER, HELP, *(f"import rlkit.{module}" for module in LIGHT)]
    code = f"import sys\nfor text in {statements}:\n exec(text)\n print(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [set(line.split()) for line in done.stdout.splitlines()]
    return dict(zip(statements, lines, strict=True))


def test_the_public_names_are_these_and_another_is_an_attribute_error():
    assert set(rlkit.__all__) == {
        "ActionResult", "AgenticTrainer", "BaseAgent", "BaseEnvironment", "__version__", "attach", "backtest",
        "compare", "evaluate", "fit", "launch", "law", "law_explorer", "load", "panel", "pass_at_k", "plan", "read",
        "read_evals", "read_configs", "recover", "sample_browser", "score", "study", "train",
    }  # fmt: skip
    assert set(rlkit.__all__) <= set(dir(rlkit))
    with pytest.raises(AttributeError, match="trian"):
        _ = rlkit.trian


@pytest.mark.parametrize("statement", ["import rlkit", DATA, ROUTER, HELP], ids=["rlkit", "data", "router", "help"])
def test_nothing_heavy_is_loaded_by(statement, loaded):
    assert loaded[statement] == set()


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_import_no_torch(module, loaded):
    assert loaded[f"import rlkit.{module}"] & {"torch", "transformers", "verl", "vllm", "ray"} == set()
