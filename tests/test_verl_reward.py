"""verl's reward entry point: from threads, the same keys for all, errors excluded and told."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlkit.domains import sources
from rlkit.rewards import score
from rlkit.types import Reward, Task
from rlkit.verl.answers_log import AnswerReader, record
from rlkit.verl.compute_score import PLACE, UngradedAnswer, compute_score

KINDS = ("arithmetic", "math_problems", "zebra", "tables")
CONFIG = {"scorer": "strict", "num_workers": 2, "timeout": 5.0}


def place(step=3, sample=0, uid="u"):
    return {
        "step": step, "split": "train", "uid": uid, "sample": sample, "task_id": "t", "prompt_tokens": 5, "tokens": 4,
        "response_tokens": 6, "finish_reason": "stop", "turns": 1,
    }  # fmt: skip


def call(task: Task, response: str, **options):
    row = task.to_row()
    info = {**row["extra_info"], "num_turns": 2, "rollout_reward_scores": {}, **options.pop("info", {})}
    truth = row["reward_model"]["ground_truth"]
    return compute_score(
        data_source=row["data_source"], solution_str=response, ground_truth=truth, extra_info=info,
        config=CONFIG, reward_router_address=None, **options,
    )  # fmt: skip


def test_threads_get_the_scores_of_the_router_under_the_same_keys():
    tasks = [sources.parse(kind).task(k) for kind in KINDS for k in range(6)]
    answers = [(t, t.worked_answer) for t in tasks]
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda pair: call(*pair), answers * 3))
    for (task, answer), result in zip(answers * 3, results, strict=True):
        assert set(result) == {"score", "correct"}
        expected = score(task.data_source, answer, task.ground_truth, task.extra_info)
        assert result == {"score": expected.value, "correct": float(bool(expected.correct))}
    assert {r["score"] for r in results} >= {1.0}


def test_an_answer_that_cannot_be_graded_raises_and_is_told_and_is_no_zero(tmp_path):
    task = Task.ask("no_such_source", "?", "1")
    with pytest.raises(UngradedAnswer, match="no_such_source"):
        call(task, "1", answers=str(tmp_path), info={PLACE: place()})
    good = sources.parse("arithmetic").task(0)
    call(good, str(good.ground_truth), answers=str(tmp_path), info={PLACE: place(sample=1)})
    reader = AnswerReader(tmp_path)
    reader.poll()
    failed, right = reader.take(3, "train")
    assert failed["value"] is None and failed["correct"] is None and "no_such_source" in failed["error"]
    assert (right["value"], right["correct"], right["error"]) == (1.0, True, None)
    assert reader.take(3, "train") == []


def test_a_custom_reward_function_is_called_through_the_router(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.25\n"
    )
    monkeypatch.setitem(CONFIG, "custom_reward_function", f"{file}:compute_score")
    assert call(sources.parse("arithmetic").task(0), "x")["score"] == 0.25


def test_answers_are_read_as_they_come_and_half_lines_wait(tmp_path):
    reader = AnswerReader(tmp_path)
    record(tmp_path, place(), "math", "12", Reward.of(True, steps=2))
    reader.poll()
    assert (reader.seen, reader.count(3, "train"), reader.count(3, "test")) == (1, 1, 0)
    file = next(tmp_path.glob("*.jsonl"))
    line = json.dumps({**place(sample=2), "value": 0.0, "correct": False, "error": None})
    with file.open("a") as log:
        log.write(line[:20])
    reader.poll()
    assert reader.seen == 1
    with file.open("a") as log:
        log.write(line[20:] + "\n")
    reader.poll()
    assert [row["sample"] for row in reader.take(3, "train")] == [0, 2]


def test_a_line_that_a_full_disk_cut_is_a_missing_answer_and_ends_no_run(tmp_path):
    place = {"step": 1, "split": "train", "uid": "a"}
    record(tmp_path, place | {"sample": 0}, "x", "text", Reward.of(True))
    (log,) = tmp_path.glob("*.jsonl")
    log.write_bytes(log.read_bytes() + b'{"step": 1, "spl')
    record(tmp_path, place | {"sample": 1}, "x", "lost with the cut line", Reward.of(True))
    record(tmp_path, place | {"sample": 2}, "x", "text", Reward.of(False))
    reader = AnswerReader(tmp_path)
    reader.poll()
    assert [row["sample"] for row in reader.take(1, "train")] == [0, 2]
