"""Export and `rlkit data …`: what verl's own data set and other libraries load, and how the commands end."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from cases import DATA, table
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RunConfig
from rlkit.data import TaskStream, export, held_out, rows
from rlkit.data.check import reference_response
from rlkit.data.rows import from_verl
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.types import Task

TRAIN = ["math_problems", "zebra", "arc", "programs", "code_io", {"kind": "reasoning_gym", "dataset": "chain_sum"}]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, list[Task], list[Task]]:
    """The folder of the files of a run, and its training and held-out tasks in their order."""
    data = {"train": TRAIN, "train_batch_size": 16, "train_max_samples": 60, "sft_ratio": 0.2}
    content = {"data": data, "trainer": {"total_training_steps": 4}, "evaluation": {"size": 12}}
    config, out = RunConfig.model_validate(content), tmp_path_factory.mktemp("exported")
    tests = held_out(config)
    assert export(config, out, progress=False) == {"train": 64, "test": 12}
    return out, [t for batch in TaskStream(config, tests) for t in batch], tests


def test_verl_and_rlkit_load_the_rows_in_the_mixture_s_order(exported, tmp_path):
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from rlkit.models.ladder import byte_tokenizer

    out, train, tests = exported
    options: dict[str, Any] = {"max_prompt_length": 20_000, "filter_overlong_prompts_workers": 1}
    options["cache_dir"] = str(tmp_path / "cache")
    files = [str(out / "train.parquet"), str(out / "test.parquet")]
    tokenizer: Any = byte_tokenizer()  # verl's annotation names the slow class; it takes either
    data = RLHFDataset(files, tokenizer, OmegaConf.create(options))
    assert len(data) == 76 and [t for file in files for t in rows.tasks(file)] == train + tests
    for row, task in zip((data[k] for k in range(76)), train + tests, strict=True):
        assert (row["data_source"], tuple(row["raw_prompt"])) == (task.data_source, task.prompt)
        truth, info = from_verl(row["reward_model"]["ground_truth"], {**row["extra_info"], "num_turns": 2})
        assert (truth, info) == (task.ground_truth, task.extra_info), "without what verl adds"
        assert row["index"] == task.extra_info["index"]


def test_a_bare_reference_answer_has_the_form_that_the_prompt_asks_for():
    forms = {"math_problems": r"\boxed{", "zebra": "<answer> {", "arc": "<answer> [[", "tables": r"\boxed{"}
    forms |= {"code_io": "```json\n{", "programs": "```python\ndef solve"}
    for kind, start in forms.items():
        answer = reference_response(sources.parse(kind).task(3))
        assert answer is not None and answer.startswith(start)


@pytest.mark.parametrize(*table("data_reference_answer_is_spelled_as"))
def test_a_reference_answer_is_spelled_as_a_model_does(truth, answer):
    task = Task.ask("math__x", "Give it in \\boxed{}.", truth)
    assert reference_response(task) == rf"\boxed{{{answer}}}"


def call(*words, status=0) -> str:
    result = CliRunner().invoke(app, ["data", *map(str, words)], env={"COLUMNS": "160"})
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == status, (result.output, result.exception)
    return result.output


@pytest.fixture
def params(tmp_path) -> Path:
    return Path(shutil.copy(DATA / "mix.yaml", tmp_path))


def test_export_and_check(params, tmp_path):
    out = ("--out", tmp_path / "built")
    assert "train: 32 rows, test: 12 rows" in call("export", params, *out)
    train, test = tmp_path / "built/train.parquet", tmp_path / "built/test.parquet"
    assert "32 rows: 0 findings" in call("check", train, "--held-out", test)
    said = call("check", train, "--held-out", train, status=2)
    assert "held_out (error, 32 rows): the prompt is in a held-out set" in said
    assert said.count("train.parquet, row") >= 3
    call("check", train, train, status=1)
    assert "train: 48 rows" in call("export", params, "trainer.total_training_steps=3", *out)


def test_bad_requests_are_one_sentence(params, tmp_path):
    for words, sentence in (
        (("check", tmp_path / "none.parquet"), "There is no file"),
        (("export", params, "data.trian=[]", "--out", tmp_path / "o"), "Unknown key 'data.trian'"),
    ):
        with pytest.raises(UserError, match=sentence):
            call(*words)
    assert not (tmp_path / "o").exists()


def test_every_source_is_listed_with_its_options():
    text = call("sources")
    assert all(kind in text for kind in sources) and "digits=2" in text
    assert "arXiv 1911.01547), through" in text, "a sentence ends at a full stop with a space behind it"
