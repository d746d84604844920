"""Files of one's own: sources, scorers, environments and algorithms that a configuration names under `plugins`."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest
import yaml
from cases import table
from tiny import configured
from typer.testing import CliRunner

from rlkit.backends import train
from rlkit.cli import app
from rlkit.config import RewardConfig, RunConfig
from rlkit.errors import UserError
from rlkit.params import override, validate
from rlkit.registry import PLUGINS, load_plugins
from rlkit.rewards import Router
from rlkit.training import algorithms

SMALL = {
    "model": {"path": "ladder-10k", "warm_start": {"kind": "none"}},
    "data": {"train_batch_size": 2, "max_prompt_length": 24, "max_response_length": 4},
    "rollout": {"n": 2}, "evaluation": {"size": 4, "n": 1}, "reward": {"num_workers": 1},
    "trainer": {"total_training_steps": 1},
}  # fmt: skip


small = partial(configured, SMALL)


WORLD = """
from typing import Literal

from rlkit.domains import Source, scorer, sources
from rlkit.types import Reward, Task


@sources.register("{name}")
class Parity(Source):
    kind: Literal["{name}"] = "{name}"

    def task(self, index):
        return Task.ask("{name}", f"even {{index}}", "no" if index % 2 else "yes")


@scorer("{name}")
def score(response, ground_truth, extra_info):
    return Reward.of(response.strip() == ground_truth, graded_by="{name}")
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A file with a source and a scorer whose names no other test has."""
    monkeypatch.setenv(PLUGINS, "")
    name = f"parity_{os.getpid()}_{tmp_path.name}"
    path = tmp_path / "my_world.py"
    path.write_text(WORLD.format(name=name))
    return name, path


def test_a_run_learns_from_a_source_and_a_scorer_of_a_file_outside_the_package(world, tmp_path):
    name, path = world
    config = small(plugins=[str(path)], data__train=[{"kind": name}])
    run = train(config, root=tmp_path)
    assert run.status == "finished"
    rows = [json.loads(line) for line in (run.folder / "samples.jsonl").read_text().splitlines()]
    assert {row["data_source"] for row in rows} == {name} and all(row["error"] is None for row in rows)
    path.write_text(path.read_text() + "\n# changed\n")
    more = small(plugins=[str(path)], data__train=[{"kind": name}])
    with pytest.raises(UserError, match="was begun with plugins"):
        train(more, root=tmp_path)


def test_a_scorer_that_was_changed_grades_from_then_on(world):
    name, path = world
    verdicts = []
    for change in ("==", "!="):
        path.write_text(path.read_text().replace("==", change))
        load_plugins([path])
        with Router(RewardConfig(num_workers=1)) as router:
            verdicts += [r.correct for r in router.grade_rows([(name, "yes", "yes", None)])]
    assert verdicts == [True, False]


def test_answers_are_graded_from_the_command_line_with_a_plugin(world, tmp_path):
    name, path = world
    rows = [{"data_source": name, "response": r, "ground_truth": "yes"} for r in ("yes", "no")]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "rlkit", "score", str(tmp_path / "answers.jsonl")]
    done = subprocess.run(command, env={**os.environ, PLUGINS: str(path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scored = [json.loads(line) for line in (tmp_path / "answers.scored.jsonl").read_text().splitlines()]
    assert [row["correct"] for row in scored] == [True, False]


def test_a_configuration_without_its_plugin_says_what_is_unknown(world):
    name, _ = world
    with pytest.raises(UserError, match=f"{name}.*plugins"):
        validate(RunConfig, {"data": {"train": [{"kind": name}]}})


@pytest.mark.parametrize(*table("plugins_broken"))
def test_a_plugin_that_cannot_be_imported_is_one_sentence(tmp_path, text, reason):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(UserError, match=f"{path}.*{reason}"):
        load_plugins([str(path)])


def test_a_plugin_that_is_not_there_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"nowhere\.py.*{tmp_path}"):
        validate(RunConfig, {"plugins": ["nowhere.py"]})


def test_a_plugin_may_bring_an_algorithm_and_an_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(PLUGINS, "")
    path = tmp_path / "worlds.py"
    path.write_text(
        "from typing import Literal\n"
        "from verl.trainer.ppo.core_algos import register_adv_est\n"
        "from rlkit.environments.base import environments\n"
        "from rlkit.environments.business import Business\n"
        "@environments.register('shop_of_a_plugin')\n"
        "class Shop(Business):\n"
        "    kind: Literal['shop_of_a_plugin'] = 'shop_of_a_plugin'\n"
        "@register_adv_est('mine_of_a_plugin')\n"
        "def mine(token_level_rewards, response_mask, config=None, **kwargs):\n"
        "    a = token_level_rewards.sum(-1, keepdim=True) * response_mask\n    return a, a\n"
    )
    task = {"kind": "environment", "environment": {"kind": "shop_of_a_plugin"}}
    keys = {
        "study": "plugins", "plugins": ["worlds.py"], "data.train": [task],
        "algorithm.adv_estimator": "mine_of_a_plugin", "data.max_prompt_length": 800, "data.max_response_length": 60,
    }  # fmt: skip
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(override(SMALL, keys)))
    registry = algorithms.core().ADV_ESTIMATOR_REGISTRY
    monkeypatch.setattr(algorithms.core(), "ADV_ESTIMATOR_REGISTRY", registry.copy())
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", "params.yaml"])
    assert done.exit_code == 0, done.output
    (samples,) = tmp_path.glob("outputs/plugins/runs/*/samples.jsonl")
    assert "shop_of_a_plugin" in samples.read_text()
