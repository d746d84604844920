"""Streams: exact mixtures, purity, held-out sets, data volume, curricula."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from cases import table
from hypothesis import given, settings
from hypothesis import strategies as st

from rlkit.config import RunConfig
from rlkit.data import TaskStream, held_out
from rlkit.data.held_out_tasks import apportion
from rlkit.domains import sources
from rlkit.errors import UserError
from rlkit.types import Task


def config(*train, size=50, steps=20, seed=0, batch=16, **data) -> RunConfig:
    data = {"train": list(train) or ["arithmetic"], "train_batch_size": batch, **data}
    content = {"data": data, "trainer": {"total_training_steps": steps}, "evaluation": {"size": size}}
    return RunConfig.model_validate({"seed": seed, **content})


def ids(stream: TaskStream, first: int, last: int) -> list[str]:
    return [t.id for step in range(first, last + 1) for t in stream.batch(step)]


weights = st.lists(st.floats(0, 10), min_size=1, max_size=6).filter(lambda w: sum(w) > 0.01)


@given(weights, st.integers(0, 3000), st.integers(0, 200))
@settings(deadline=None, max_examples=200)
def test_apportion_is_exact_and_never_takes_back(shares, total, more):
    now, later = apportion(total, shares), apportion(total + more, shares)
    assert now.sum() == total and later.sum() == total + more
    assert (later >= now).all()
    assert all(n == 0 for n, w in zip(now, shares, strict=True) if w == 0)


def test_apportion_is_websters_method():
    votes = [7270, 1230, 2220, 53]
    quotients = sorted(((v / (2 * k + 1), i) for i, v in enumerate(votes) for k in range(400)), reverse=True)
    for seats in (1, 7, 21, 150):
        won = Counter(i for _, i in quotients[:seats])
        assert apportion(seats, votes).tolist() == [won[i] for i in range(4)]


def test_a_resumed_run_continues_with_the_next_row_and_seeds_give_other_rows():
    c = config({"kind": "arithmetic", "weight": 3}, "string_trace")
    tests = held_out(c)
    whole = ids(TaskStream(c, tests), 1, 12)
    assert ids(TaskStream(c, tests), 1, 5) + ids(TaskStream(c, tests), 6, 12) == whole
    assert ids(TaskStream(c, tests), 7, 7) == whole[6 * 16 : 7 * 16], "a batch needs no earlier batch"
    other = config({"kind": "arithmetic", "weight": 0.3}, seed=2, train_max_samples=400)
    assert [t.id for t in held_out(config(seed=1))] == [t.id for t in held_out(other)]
    rows = [set(ids(TaskStream(config(seed=seed), []), 1, 10)) for seed in (1, 2)]
    assert len(rows[0] & rows[1]) < 16, "only the chance repeats of a small space"


def test_the_held_out_set_is_distinct_spread_evenly_and_never_trained_on_even_in_a_tiny_space():
    tests = held_out(config("arithmetic", "string_trace", "lookup", size=100))
    assert len({t.id for t in tests}) == 100
    assert sorted(Counter(t.data_source for t in tests).values()) == [33, 33, 34]
    c = config({"kind": "arithmetic", "digits": 1}, size=120, steps=60)  # 200 tasks exist
    tests = held_out(c)
    trained = set(ids(TaskStream(c, tests), 1, 60))
    assert len(trained) > 60 and not trained & {t.id for t in tests}


def spelled_three_ways(path, count: int = 300) -> None:
    """Rows that ask each question three times: with another truth, another data_source and a trailing blank."""
    rows = []
    for k in range(count):
        ask, half = f"Which number is half of {k}?", f"\\frac{{{k}}}{{2}}"
        rows += [Task.ask("math__a", ask, f"{k / 2}"), Task.ask("math__a", ask + " ", half)]
        rows.append(Task.ask("math__b", ask.replace(" ", "\n "), f"{k / 2}"))
    path.write_text("\n".join(json.dumps(t.to_row()) for t in rows))


def asked(tasks) -> set[str]:
    return {" ".join(t.prompt[0]["content"].split()) for t in tasks}


def test_a_question_is_held_out_or_set_aside_under_every_spelling_and_data_source(tmp_path):
    spelled_three_ways(tmp_path / "rows.jsonl")
    file = {"kind": "file", "path": str(tmp_path / "rows.jsonl")}
    for size, more, counts in (
        (60, {"steps": 40}, (240, 0)),
        (20, {"steps": 20, "train_max_samples": 200, "sft_ratio": 0.4}, (120, 80)),
    ):
        c = config(file, size=size, **more)
        tests = held_out(c)
        rl = asked(t for batch in TaskStream(c, tests) for t in batch)
        sft = asked(t for batch in TaskStream(c, tests, side="sft") for t in batch) if counts[1] else set()
        assert len(asked(tests)) == size and (len(rl), len(sft)) == counts
        assert not rl & sft and not (rl | sft) & asked(tests)


def test_every_generator_asks_another_question_for_every_task():
    """What tells its problems apart by their prompts alone."""
    for kind in sorted(set(sources) - {"file", "benchmark", "environment", "reasoning_gym"}):
        tasks = [sources.parse(kind).task(k) for k in range(300)]
        assert len({t.problem for t in tasks}) == len({t.id for t in tasks}), kind


@pytest.mark.parametrize(*table("data_impossible"))
def test_data_that_the_sources_do_not_have_are_one_sentence(train, options, sentence):
    c = config(*train, **options)
    with pytest.raises(UserError, match=sentence):
        ids(TaskStream(c, held_out(c)), 1, 400)


def test_every_batch_has_the_mixture_and_the_running_total_is_exact():
    kinds = {"arithmetic": "math__arithmetic", "lookup": "table__lookup", "math_problems": "math__problems"}
    shares = [0.7, 0.2, 0.1]
    train = ({"kind": kind, "weight": share} for kind, share in zip(kinds, shares, strict=True))
    stream, total = TaskStream(config(*train), []), Counter()
    for step in range(1, 21):
        total += Counter(t.data_source for t in stream.batch(step))
        shown = np.array([total[source] for source in kinds.values()])
        assert np.abs(shown - np.array(shares) * 16 * step).max() <= 1
        assert [stream.exposure(step)[f"data/tasks/{kind}"] for kind in kinds] == shown.tolist()


def test_a_source_of_weight_zero_is_evaluated_and_not_trained_on():
    for unused in ({"kind": "lookup"}, {"kind": "benchmark", "name": "arc_agi_1"}):
        c = config("arithmetic", unused | {"weight": 0}, train_max_samples=100)
        tests = held_out(c)
        (source,) = {t.data_source for t in tests} - {"math__arithmetic"}
        assert source in ("table__lookup", "simulation__arcagi1")
        assert {t.data_source for batch in TaskStream(c, tests) for t in batch} == {"math__arithmetic"}


def test_smaller_data_sets_are_contained_in_larger_ones():
    sources = ({"kind": "math_problems", "weight": 3}, "lookup")
    pools = []
    for unique in (64, 128, 131, 256):
        stream = TaskStream(config(*sources, train_max_samples=unique, steps=40), [])
        pools.append({t for t in ids(stream, 1, 40)})
        assert len(pools[-1]) == unique
    assert pools[0] < pools[1] < pools[2] < pools[3]


def test_unique_tasks_and_passes_are_separate_and_counts_are_shares_of_the_mixture():
    c = config("math_problems", train_max_samples=80, steps=20)  # 320 rows: four passes
    stream = TaskStream(c, [])
    rows = ids(stream, 1, 20)
    passes = [rows[k : k + 80] for k in range(0, 320, 80)]
    assert all(sorted(p) == sorted(passes[0]) for p in passes)
    assert passes[1] != passes[2], "each pass has its own order"
    assert stream.exposure(20)["data/epochs/math_problems"] == 4
    assert stream.exposure(20)["data/unique/math_problems"] == 80
    c = config({"kind": "math_problems", "count": 60}, {"kind": "lookup", "count": 20}, steps=5)
    rows = [t for batch in TaskStream(c, []) for t in batch]
    assert Counter(t.data_source for t in rows) == {"math__problems": 60, "table__lookup": 20}
    assert len({t.id for t in rows}) == 80


def test_a_curriculum_goes_from_easy_to_hard_in_every_source():
    stream = TaskStream(config("math_problems", "zebra", order="curriculum", steps=10), [])
    for source in ("math__problems", "logic__zebra_puzzle_generated"):
        batches = [[t.extra_info["difficulty"] for t in b if t.data_source == source] for b in stream]
        assert all(max(a) <= min(b) for a, b in pairwise(batches))
        assert batches[0][0] < batches[-1][0]
    hard = config("math_problems", steps=10, order="curriculum", difficulty_field="-difficulty")
    down = TaskStream(hard, [])
    assert down.batch(1)[0].extra_info["difficulty"] > down.batch(10)[0].extra_info["difficulty"]


def test_sequential_shows_one_source_after_another_and_stages_change_the_weights_at_their_step():
    sources = ({"kind": "arithmetic", "weight": 3}, "lookup", "string_trace")
    shown = [t.data_source for b in TaskStream(config(*sources, order="sequential", steps=10), []) for t in b]
    blocks = [s for s, before in zip(shown, [None, *shown], strict=False) if s != before]
    assert Counter(shown) == {"math__arithmetic": 96, "table__lookup": 32, "simulation__string_trace": 32}
    assert len(blocks) <= 5  # three sources, and one batch that holds the border of two
    stages = [{"start": 1, "weights": [1, 0]}, {"start": 6, "weights": [1, 3]}]
    stream = TaskStream(config("arithmetic", "lookup", order="stages", stages=stages), [])
    counts = [Counter(t.data_source for t in b) for b in stream]
    assert all(c == {"math__arithmetic": 16} for c in counts[:5])
    assert all(c == {"math__arithmetic": 4, "table__lookup": 12} for c in counts[5:])


def test_the_supervised_part_and_the_rl_part_of_a_pool_are_disjoint_and_exact():
    c = config("math_problems", "programs", train_max_samples=200, sft_ratio=0.3, steps=30)
    tests = held_out(c)
    rl, sft = (set(ids(TaskStream(c, tests, side=side), 1, 30)) for side in ("rl", "sft"))
    assert (len(rl), len(sft)) == (140, 60)
    assert not rl & sft and not (rl | sft) & {t.id for t in tests}
    more = config("math_problems", "programs", train_max_samples=200, sft_ratio=0.6, steps=30)
    assert not sft & set(ids(TaskStream(more, tests), 1, 30))  # a smaller ratio's part is in a larger one's
