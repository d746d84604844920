"""Export: what verl's own data set loads, TRL's rows, JSON lines, and the supervised part."""

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out, rows
from rlkit.data.exporting import convert, export, from_verl, verl_row, write_sft
from rlkit.data.reference import reference_response
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.types import Task

TRAIN = [
    "math_problems",
    "zebra",
    "arc",
    "programs",
    "code_io",
    {"kind": "reasoning_gym", "dataset": "chain_sum"},
]


@pytest.fixture
def config() -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"train": TRAIN, "train_batch_size": 16, "train_max_samples": 60, "sft_ratio": 0.2},
            "trainer": {"total_training_steps": 4},
            "evaluation": {"size": 12},
        }
    )


def in_order(config):
    return [t for batch in TaskStream(config, held_out(config)) for t in batch]


def test_verl_loads_the_rows_in_the_mixture_s_order(config, tmp_path):
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from rlkit.models.tokenizer import byte_tokenizer

    assert export(config, tmp_path, "verl", progress=False) == {"train": 64, "test": 12, "sft": 12}
    options = {
        "max_prompt_length": 20_000,
        "filter_overlong_prompts_workers": 1,
        "cache_dir": str(tmp_path / "cache"),
    }
    files = [str(tmp_path / "train.parquet"), str(tmp_path / "test.parquet")]
    tokenizer: Any = byte_tokenizer()  # verl's annotation names the slow class; it takes either
    data = RLHFDataset(files, tokenizer, OmegaConf.create(options))
    wanted = in_order(config) + held_out(config)
    assert len(data) == len(wanted) == 76
    for row, task in zip((data[k] for k in range(76)), wanted, strict=True):
        assert (row["data_source"], tuple(row["raw_prompt"])) == (task.data_source, task.prompt)
        truth, info = from_verl(row["reward_model"]["ground_truth"], {**row["extra_info"], "num_turns": 2})
        assert (truth, info) == (task.ground_truth, {**task.extra_info, "num_turns": 2})
        assert row["index"] == task.extra_info["index"]


def test_trl_and_json_lines_hold_the_same_tasks(config, tmp_path):
    wanted = in_order(config)
    export(config, tmp_path / "trl", "trl", progress=False)
    export(config, tmp_path / "lines", "jsonl", progress=False)
    trl = [json.loads(line) for line in (tmp_path / "trl/train.jsonl").read_text().splitlines()]
    assert [r["prompt"] for r in trl] == [list(t.prompt) for t in wanted]
    assert [json.loads(r["ground_truth"]) for r in trl] == [t.ground_truth for t in wanted]
    assert list(rows.tasks(tmp_path / "lines/train.jsonl")) == wanted


def test_supervised_rows_end_with_a_right_answer_and_are_no_rl_rows(config, tmp_path):
    export(config, tmp_path, "rows", progress=False)
    chats = pq.read_table(tmp_path / "sft.parquet").to_pylist()
    assert len({c["id"] for c in chats}) == 12
    assert not {c["id"] for c in chats} & {t.id for t in in_order(config)}
    for chat in chats:
        assert [m["role"] for m in chat["messages"]] == ["user", "assistant"]
    worked = next(c["messages"][1]["content"] for c in chats if c["data_source"] == "math__problems")
    assert "\\boxed{" in worked and len(worked) > 30


def test_prepared_files_are_converted_together(tmp_path):
    parts = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    tasks = [sources.parse("lookup").task(k) for k in range(10)]
    rows.write(parts[0], tasks[:4], progress=False)
    rows.write(parts[1], tasks[4:], progress=False)
    assert convert(parts, tmp_path / "both", "verl", progress=False) == 10
    assert pq.read_table(tmp_path / "both.parquet").to_pylist() == [
        {**verl_row(t), "prompt": list(t.prompt)} for t in tasks
    ]


def test_what_cannot_be_exported_is_refused(config, tmp_path):
    adaptive = config.model_copy(update={"data": config.data.model_copy(update={"order": "adaptive"})})
    with pytest.raises(UserError, match=r"data\.order is adaptive"):
        export(adaptive, tmp_path, progress=False)
    unsolved = Task.ask(
        "codegen__taco", "Print 1.", json.dumps({"inputs": [""], "outputs": ["1"]}), ability="codegen"
    )
    with pytest.raises(UserError, match=r"codegen__taco .* has no reference solution"):
        write_sft(tmp_path / "sft.parquet", [unsolved], progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_bare_reference_answer_has_the_form_that_the_prompt_asks_for():
    forms = {"math_problems": r"\boxed{", "zebra": "<answer> {", "arc": "<answer> [[", "tables": r"\boxed{"}
    forms |= {"code_io": "```json\n{", "programs": "```python\ndef solve"}
    for kind, start in forms.items():
        answer = reference_response(sources.parse(kind).task(3), worked=False)
        assert answer is not None and answer.startswith(start)
