"""Tasks made ahead are those that the stream gives, whenever and however far they were made."""

import json

import pytest

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.data.supply import Supply
from rlkit.errors import UserError
from rlkit.models.loading import load_policy
from rlkit.training.upcoming import Upcoming
from rlkit.types import Task

MIXTURE = [
    {"kind": "arithmetic"},
    {"kind": "string_trace"},
    {"kind": "environment", "environment": {"kind": "mathematics"}},
]


def made(**data) -> tuple[RunConfig, Upcoming]:
    c = RunConfig.model_validate(
        {
            "model": {"path": "ladder-10k"},
            "data": {"train": MIXTURE, "train_batch_size": 24, **data},
            "trainer": {"total_training_steps": 5},
            "evaluation": {"size": 12},
        }
    )
    return c, Upcoming(TaskStream(c, held_out(c)), load_policy(c.model), 5)


def test_what_is_made_ahead_is_the_streams_batch_and_its_prompts():
    c, upcoming = made()
    stream, policy, counts = TaskStream(c, held_out(c)), upcoming.policy, []
    for step in range(1, 6):
        tasks, encoded = upcoming.take(step)
        upcoming.prepare(step + 1)
        assert [t.id for t in tasks] == [t.id for t in stream.batch(step)]
        answers = {id(t): t for t in tasks if not t.data_source.startswith("environment__")}
        assert all(ids == policy.encode(answers[key].prompt) for key, ids in encoded.items())
        counts.append(len(encoded))
        for _ in range((0, 10, 26, 1000)[step % 4]):
            upcoming.advance()
    assert counts == [0, 0, 8, 16, 0]  # after nothing, a part of the tasks, all and 8 prompts, all, nothing
    assert not upcoming.advance()  # there is no sixth step


def test_metrics_of_a_step_do_not_tell_how_far_the_next_one_was_made(tmp_path):
    """A file's number of tasks is known once the first of them is made, here for a step ahead."""
    rows = [Task.ask("math__arithmetic", f"{k} + 1", str(k + 1)).to_row() for k in range(100)]
    (file := tmp_path / "rows.json").write_text(json.dumps(rows))
    c, upcoming = made(
        train=[{"kind": "arithmetic"}, {"kind": "file", "path": str(file)}], order="sequential"
    )
    alone = TaskStream(c, held_out(c))
    for step in range(1, 6):
        upcoming.prepare(step)
        while upcoming.advance():
            pass
        alone.batch(step)
        upcoming.prepare(step + 1)
        while upcoming.advance():
            pass
        assert upcoming.stream.exposure(step) == alone.exposure(step)
    assert alone.exposure(5)["data/unique/file"] == 60


def test_an_adaptive_order_is_not_foreseen():
    _, upcoming = made(order="adaptive")
    upcoming.take(1)
    upcoming.prepare(2)
    assert not upcoming.advance()


def test_what_fails_ahead_fails_in_the_step_that_it_belongs_to(monkeypatch):
    _, upcoming = made()
    upcoming.take(1)
    whole = Supply.task

    def ends(self, ordinal):
        if ordinal >= 20:
            raise UserError("no more tasks")
        return whole(self, ordinal)

    monkeypatch.setattr(Supply, "task", ends)
    upcoming.prepare(2)
    while upcoming.advance():
        pass
    upcoming.take(2)
    upcoming.prepare(3)
    while upcoming.advance():
        pass
    with pytest.raises(UserError, match="no more tasks"):
        upcoming.take(3)
