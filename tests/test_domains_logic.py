"""Logic and grids: generated puzzles have one solution, and no held-out task has a variant in training."""

from itertools import permutations, product

import numpy as np

from rlkit.domains import HELD_OUT_INDICES, sources
from rlkit.domains.arc import corpus
from rlkit.domains.logic import puzzle, solutions, unique


def test_zebra_puzzles_have_one_solution_and_no_idle_clue():
    for k in range(25):
        houses, clues = puzzle(np.random.default_rng(k), 3, 3)
        grids = [g for g in product(permutations(range(3)), repeat=3) if all(c.holds(list(g)) for c in clues)]
        assert grids == [tuple(houses)] == [tuple(g) for g in solutions(clues, 3, 3)]
        assert not any(unique([c for c in clues if c is not clue], 3, 3) for clue in clues)


def test_zebra_clues_mean_what_they_say():
    houses, clues = puzzle(np.random.default_rng(3), 4, 4)

    def house(item):
        return houses[item[0]][item[1]]

    meaning = {
        "next": lambda c: abs(house(c.first) - house(c.second)) == 1,
        "left": lambda c: house(c.first) < house(c.second),
        "same": lambda c: house(c.first) == house(c.second),
        "directly": lambda c: house(c.first) + 1 == house(c.second),
        "at": lambda c: house(c.first) == c.second[1],
    }
    assert all(meaning[c.kind](c) for c in clues) and len({c.kind for c in clues}) >= 3


def test_no_held_out_arc_task_has_a_variant_in_training():
    source = sources.parse("arc")
    tests = {source.task(k).extra_info["arc_id"] for k in range(400)}
    trained = {source.task(HELD_OUT_INDICES + k).extra_info["arc_id"] for k in range(400)}
    assert tests <= {t.id for t in corpus("evaluation")} and trained <= {t.id for t in corpus("training")}
    assert not tests & trained
    plain = source.task(HELD_OUT_INDICES)
    original = next(t for t in corpus("training") if t.id == plain.extra_info["arc_id"])
    assert plain.ground_truth == original.test[0][1].tolist()
