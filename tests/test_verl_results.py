"""verl's files become the run store: metrics, evaluations a sample, ledger, resume; the readers see no difference. And
the answers log: verl's reward function scores from threads and tells every answer, errors included."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tiny import configured

import rlkit
from rlkit.compute import Shape, Work
from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.domains import sources
from rlkit.errors import RunStopped
from rlkit.results.store import RunStore
from rlkit.rewards import score
from rlkit.types import Reward, Task
from rlkit.verl.compute_score import PLACE, AnswerReader, UngradedAnswer, compute_score, record
from rlkit.verl.processes import Files
from rlkit.verl.results import MISSING, Results

CONTENT = {
    "study": "on-verl", "trainer": {"backend": "verl", "total_training_steps": 2, "test_freq": 2},
    "data": {"train_batch_size": 4, "train": [{"kind": "arithmetic"}]}, "rollout": {"n": 2},
    "evaluation": {"size": 5, "n": 2, "pass_at": [1, 2]},
}  # fmt: skip
config = partial(configured, CONTENT)
CONFIG = config()
SHAPE = Shape(2, 8, 16, 2, 2, 4, 25)


def place(**facts):
    """Of an answer, as verl's processes tell it."""
    told = {"step": 3, "split": "train", "uid": "u", "sample": 0, "task_id": "t", "prompt_tokens": 10, "tokens": 4}
    return {**told, "response_tokens": 4, "finish_reason": "stop", "turns": 1, **facts}


class Verl:
    """Writes what verl and its workers write."""

    def __init__(self, files: Files) -> None:
        files.answers.mkdir(parents=True)
        self.files = files

    def answer(self, step, split, task, sample, reward, uid=None, **facts):
        whose = {"step": step, "split": split, "uid": uid or task.id, "sample": sample, "task_id": task.id}
        record(self.files.answers, place(**whose, **facts), task.data_source, "42", reward)

    def evaluate(self, step, tasks, right):
        for i, task in enumerate(tasks):
            for k in range(2):
                self.answer(step, "test", task, k, Reward.of((i * 2 + k) in right))

    def train(self, step, rewards):
        for i, task in enumerate(TaskStream(CONFIG, held_out(CONFIG)).batch(step)):
            for k in range(2):
                self.answer(step, "train", task, k, rewards[2 * i + k])

    def log(self, step, **data):
        with (self.files.attempt / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "data": data}) + "\n")

    def step(self, step, rewards, tasks=(), right=()):
        self.train(step, rewards)
        data = {"training/global_step": step, "timing_s/step": 2.5, "actor/pg_loss": 0.1, "critic/score/mean": 9.0}
        if tasks:
            self.evaluate(step, tasks, right)
            data["val-aux/x/score/mean@2"] = 0.5
        self.log(step, **data)


@pytest.fixture
def run(tmp_path):
    with RunStore.open(CONFIG, tmp_path) as store:
        yield store, Verl(Files.of(store.folder, "/model"))


def results(store, verl, c: RunConfig = CONFIG) -> Results:
    return Results(c, store, verl.files, SHAPE, held_out(c))


def graded(*values) -> list[Reward]:
    return [Reward.of(v > 0, float(v)) for v in values]


def test_metrics_evaluations_and_ledger_are_those_of_a_local_run(run, tmp_path):
    store, verl = run
    tasks = held_out(CONFIG)
    reader = results(store, verl)
    verl.evaluate(0, tasks, {0, 1, 2})
    verl.log(0, **{"val-core/arithmetic/reward/mean@2": 0.3})
    reader.poll()
    assert reader.step == 0 and reader.progress[1] == 10
    verl.step(1, graded(1, 0, 1, 1, 0, 0, 0, 0))
    verl.step(2, graded(1, 1, 1, 1, 0, 1, 0, 0), tasks, {0, 1, 2, 3, 4, 5})
    reader.poll()
    table = rlkit.read(store.folder)
    wide = table[table.data_source == "all"].pivot_table(index="step", columns="metric", values="value")
    assert list(wide.index) == [0, 1, 2]
    assert wide["eval/pass@1"].dropna().tolist() == [0.3, 0.6]
    assert wide["eval/pass@2"].dropna().tolist() == [0.4, 0.6]
    assert wide.loc[1, "train/accuracy"] == 3 / 8 and wide.loc[1, "group/zero_variance"] == 3 / 4
    # Of all answers, as locally; verl's counts what it trained on.
    assert wide.loc[1, "critic/score/mean"] == 3 / 8
    assert wide.loc[2, "actor/pg_loss"] == 0.1 and wide.loc[2, "timing_s/step"] == 2.5
    assert not any(name.startswith("val-") for name in wide)
    sequences = [(10, 4)] * 8
    rollout = SHAPE.forward(Work.of([10] * 4, sequences))
    update = SHAPE.training(Work.of([10] * 8, sequences))
    assert wide.loc[1, "compute/rollout_flops"] == rollout
    assert wide.loc[2, "compute/update_flops"] == 2 * update
    assert wide.loc[2, "compute/old_log_prob_flops"] == 2 * update / 3
    assert wide.loc[2, "compute/train_6nt_flops"] == 6 * SHAPE.non_embedding * 2 * 8 * 14
    assert wide.loc[2, "compute/seconds"] == 5.0 and wide.loc[2, "training/optimizer_steps"] == 2
    evals = rlkit.read_evals(store.folder)
    assert len(evals) == 20 and set(evals.task_id) == {t.id for t in tasks}
    assert store.info["evaluations"]["2"]["pass@1"] == pytest.approx(0.6)
    samples = [json.loads(line) for line in (store.folder / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 16 and samples[0]["prompt"] and samples[0]["group"] == 0


def test_what_could_not_be_graded_is_missing_and_never_a_zero(run):
    store, verl = run
    tasks, reader = held_out(CONFIG), results(store, verl, config(reward__max_error_rate=0.5))
    rewards = graded(1, 0, 1, 0, 1, 1, 1, 0)
    rewards[0], rewards[3] = Reward(error="no sandbox"), Reward(error="no sandbox")
    verl.train(1, rewards)
    for k, task in enumerate(tasks[:4]):  # and verl loses all samples of the fifth task, one of the fourth
        for sample in range(1 if k == 3 else 2):
            verl.answer(1, "test", task, sample, Reward.of(True) if k else Reward(error="judge is down"))
    verl.log(1, **{"training/global_step": 1, "val-aux/num_turns/mean": 2})
    reader.poll(ended=True)
    table = rlkit.read(store.folder)
    value = {m: v for m, v in zip(table.metric, table.value, strict=True)}
    assert value["reward/error_rate"] == 2 / 8 and value["train/accuracy"] == 4 / 6
    assert value["group/dropped"] == 2  # two groups of one answer are left out by verl's replay buffer too
    assert value["eval/pass@1"] == 1.0 and value["eval/error_rate"] == 5 / 10
    evals = rlkit.read_evals(store.folder)
    assert evals.correct.isna().sum() == 5
    assert evals.error.value_counts().to_dict() == {MISSING: 3, "judge is down": 2}


def test_too_many_errors_end_the_run(run):
    store, verl = run
    verl.step(1, [Reward(error="no sandbox")] * 4 + graded(1, 0, 1, 0))
    with pytest.raises(RunStopped, match="4 of 8 answers could not be graded.*no sandbox"):
        results(store, verl).poll()


def test_a_logged_step_waits_for_its_answers(run):
    store, verl = run
    reader = results(store, verl)
    verl.log(1, **{"training/global_step": 1})
    reader.poll()
    assert reader.step == 0 and not (store.folder / "metrics.jsonl").exists()
    verl.train(1, graded(1, 0, 1, 0, 1, 0, 1, 0))
    reader.poll()
    assert reader.step == 1


def test_a_resumed_run_continues_its_ledger_and_counts_a_saved_step_that_was_never_logged(run):
    store, _ = run
    verl = Verl(Files.of(store.folder, "/model", attempt=9))
    first = results(store, verl)
    verl.step(1, graded(1, 0, 1, 0, 1, 0, 1, 0))
    first.poll()
    whole = dict(first.ledger.metrics())
    verl.train(2, graded(1, 1, 1, 1, 1, 1, 1, 1))  # saved at 2, killed before it was logged
    again = Verl(Files.of(store.folder, "/model", attempt=10))
    second = results(store, again)
    second.resume(2)
    assert second.step == 2
    assert second.ledger.total == pytest.approx(2 * whole["compute/total_flops"])
    table = rlkit.read(store.folder, "train/accuracy")
    assert table.value.tolist() == [0.5, 1.0]
    third = results(store, again)
    third.resume(1)  # back to the checkpoint of step 1
    assert third.ledger.metrics() == whole
    assert rlkit.read(store.folder, "train/accuracy").value.tolist() == [0.5]


def test_what_spoils_a_step_is_told_once_as_of_a_local_run_and_a_gap_may_end_it(run):
    store, verl = run
    reader = results(store, verl)
    for step in (1, 2):
        verl.train(step, [Reward.of(False, killed="deadline")] * 8)
        verl.log(step, **{"training/global_step": step, "rollout_corr/log_ppl_abs_diff": 0.3})
    with pytest.warns(UserWarning) as caught:
        reader.poll()
    told = "\n".join(str(warning.message) for warning in caught)
    assert re.fullmatch(r".*broke down \(reward/killed.*\n.*got equal rewards.*\n.*differ by 0\.3 nats a token.*", told)
    assert store.info["warnings"].keys() == {"undecided verdicts", "equal rewards", "gap"}
    assert rlkit.read(store.folder, "reward/killed").value.tolist() == [1.0, 1.0]
    with pytest.raises(RunStopped, match=r"differ by 0\.3 nats a token"):
        results(store, verl, config(rollout__sync_check_freq=1)).poll()


def test_suites_are_told_apart_by_their_tasks(tmp_path):
    """verl validates on one file: what it answers there is of the held-out tasks or of a suite."""
    exam = [Task.ask("math__x", f"{k}+{k}=", str(2 * k), ability="math") for k in range(3)]
    (tmp_path / "exam.jsonl").write_text("\n".join(json.dumps(task.to_row()) for task in exam))
    c = config(evaluation__suites=[{"kind": "file", "path": str(tmp_path / "exam.jsonl")}])
    with RunStore.open(c, tmp_path) as store:
        verl = Verl(Files.of(store.folder, "/model"))
        reader = results(store, verl, c)
        verl.evaluate(0, held_out(c), {0, 1, 2})
        verl.log(0, **{"val-core/arithmetic/reward/mean@2": 0.3})
        reader.poll()
        assert not (store.folder / "evals.parquet").exists()  # the answers of the suite are waited for
        verl.evaluate(0, exam, {0, 1, 2, 3, 4})
        reader.poll()
        assert reader.step == 0
    table = rlkit.read(store.folder, "eval/pass@1*").query("metric == 'eval/pass@1'").set_index("data_source")
    assert table["value"].round(4).to_dict() == {"all": 0.3, "math__arithmetic": 0.3, "exam": 0.8333}
    sizes = {suite: len(rlkit.read_evals(store.folder, suite)) for suite in (None, "exam")}
    assert sizes == {None: 10, "exam": 6}


REWARD = {"num_workers": 2, "timeout": 5.0}


def call(task: Task, response: str, **options):
    row = task.to_row()
    info = {**row["extra_info"], "num_turns": 2, "rollout_reward_scores": {}, **options.pop("info", {})}
    truth = row["reward_model"]["ground_truth"]
    return compute_score(
        data_source=row["data_source"], solution_str=response, ground_truth=truth, extra_info=info,
        config=REWARD, reward_router_address=None, **options,
    )  # fmt: skip


def test_threads_get_the_scores_of_the_router_under_the_same_keys():
    kinds = ("arithmetic", "math_problems", "zebra", "tables")
    tasks = [sources.parse(kind).task(k) for kind in kinds for k in range(6)]
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
    file.write_text("def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.25\n")
    monkeypatch.setitem(REWARD, "custom_reward_function", f"{file}:compute_score")
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
    record(tmp_path, place(step=1), "x", "text", Reward.of(True))
    (log,) = tmp_path.glob("*.jsonl")
    log.write_bytes(log.read_bytes() + b'{"step": 1, "spl')
    record(tmp_path, place(step=1, sample=1), "x", "lost with the cut line", Reward.of(True))
    record(tmp_path, place(step=1, sample=2), "x", "text", Reward.of(False))
    reader = AnswerReader(tmp_path)
    reader.poll()
    assert [row["sample"] for row in reader.take(1, "train")] == [0, 2]
