"""Offline sources: deterministic, distinct, graded, and their answers right by independent computation."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
import sympy
from cases import records, table
from sympy.parsing import sympy_parser as parser

from rlkit.data.check import reference_response
from rlkit.domains import HELD_OUT_INDICES, sources
from rlkit.domains.arc import corpus
from rlkit.domains.code import STEPS, cases, compose
from rlkit.domains.logic import puzzle, solutions, unique
from rlkit.domains.math.tasks import FAMILIES
from rlkit.domains.reasoning import REFUSED
from rlkit.errors import UserError
from rlkit.rewards.grading import grade
from rlkit.seeds import generator

GYM_NAMES = ("chain_sum", "knights_knaves", "gsm_symbolic")  # the last has metadata that are no JSON
GYM = [{"kind": "reasoning_gym", "dataset": name} for name in GYM_NAMES]
KINDS = ["arithmetic", "math_problems", "zebra", "arc", "programs"]
KINDS += ["code_io", "string_trace", "tables", "lookup", "ordering", "formulas", *GYM]
START = HELD_OUT_INDICES + 12345


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_are_deterministic_json_and_mostly_distinct(kind):
    source = sources.parse(kind)
    tasks = [source.task(START + k) for k in range(80)]
    assert [t.id for t in tasks] == [source.task(START + k).id for k in range(80)]
    assert len({t.id for t in tasks}) >= 60
    for task in tasks:
        assert json.loads(json.dumps(dict(task.extra_info))) == task.extra_info
        assert isinstance(task.extra_info["difficulty"], int) and task.extra_info["index"] >= START
        assert any(map(re.compile(task.data_source.split("__")[0]).match, source.makes)), "makes names it"


def found(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text)
    assert match is not None, text
    return match


@pytest.mark.parametrize("kind", KINDS)
def test_every_truth_scores_one_and_another_one_does_not(kind):
    source = sources.parse(kind)
    count = 6 if kind == "programs" else 15 if kind in GYM else 60  # theirs in the sandbox
    tasks = [source.task(START + k) for k in range(count)]
    compared = 0
    for task, other in zip(tasks, tasks[1:] + tasks[:1], strict=True):
        right = reference_response(task)
        assert right is not None
        assert grade(task.data_source, right, task.ground_truth, task.extra_info).value == 1
        if task.data_source == other.data_source and task.ground_truth != other.ground_truth:
            others = reference_response(other)
            assert others is not None
            wrong = grade(task.data_source, others, task.ground_truth, task.extra_info)
            assert (wrong.correct, wrong.value) == (False, 0)
            compared += 1
    assert compared >= len(tasks) / 4


def test_programs_agree_with_their_source_and_their_tests(tmp_path):
    """All sources and tests run in one Python process of their own."""
    script, source = [], sources.parse({"kind": "programs", "steps": 6})
    for k in range(300):
        rng = generator("test", k)
        program = compose(rng, 1 + k % 6)
        script.append(program.source(f"f{k}"))
        script += [f"assert f{k}({value!r}) == {out!r}, {k}" for value, out in cases(rng, program, 4)]
        task = source.task(START + k)
        truth = json.loads(task.ground_truth)
        script.append(task.extra_info["reference"] if "functional" in truth else "")
        script.append(truth.get("functional", ""))
    path = tmp_path / "programs.py"
    path.write_text("\n".join(script))
    subprocess.run([sys.executable, path], check=True, timeout=60)


def test_steps_say_in_words_and_code_the_same_number_of_constants():
    for step in STEPS:
        assert ("{k}" in step.words) == ("{k}" in step.code), step.words
        assert re.search(rf"\b{step.takes}\b", step.code)


def test_asked_for_inputs_are_the_only_ones():
    source, rng, checked = sources.parse({"kind": "code_io", "steps": 4}), np.random.default_rng(0), 0
    for k in range(80):
        truth = json.loads(f"{{{source.task(START + k).ground_truth}}}")
        if "input" not in truth:
            continue
        again = generator("code_io", 4, "both", START + k)
        assert again.integers(2) == 1
        program = compose(again, int(again.integers(1, 5)), invertible=True)
        ((_, value),) = truth["input"].items()
        others = [v for v, _ in cases(rng, program, 50)]
        assert all(program.run(v) != program.run(value) for v in others if v != value)
        checked += 1
    assert checked >= 25


def test_mathematics_against_sympy():
    rules = (*parser.standard_transformations, parser.implicit_multiplication_application)

    def read(text):
        return parser.parse_expr(text.replace("^", "**"), transformations=rules)

    checked = Counter()
    for k in range(300):
        task = sources.parse({"kind": "math_problems", "level": 5}).task(START + k)
        text, family = task.extra_info["original_question"], task.extra_info["family"]
        answer = sympy.Rational(re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", task.ground_truth))
        numbers = [int(number) for number in re.findall(r"-?\d+", text)]
        if family == "linear_equation":
            left, right = found(r": \$(.*) = (.*)\$", text).groups()
            right_answer = sympy.solve(sympy.Eq(read(left), read(right)))[0]
        elif family == "linear_system":
            pairs = re.findall(r"\$([^$=]*) = (-?\d+)\$", text)
            solved = sympy.solve([sympy.Eq(read(a), int(b)) for a, b in pairs], dict=True)[0]
            right_answer = sum(solved.values())
        elif family == "quadratic":
            right_answer = max(sympy.solve(read(found(r"\$(.*) = 0", text)[1])))
        elif family == "derivative":
            f, at = found(r"f\(x\) = (.*)\$\. What is \$f'\((-?\d+)\)", text).groups()
            right_answer = sympy.diff(read(f)).subs(sympy.Symbol("x"), int(at))
        elif family == "modular_power":
            right_answer = pow(*numbers)
        elif family == "arithmetic_series":
            n, a, b, _ = numbers
            right_answer = sum(a + (b - a) * j for j in range(n))
        elif family == "greatest_divisor":
            right_answer = sympy.gcd(*numbers)
        elif family == "collections":
            right_answer = int(found(r"has (\d+)", text).group(1))
            events = re.findall(r"finds (\d+) more|gives (\d+) of them|for (\d+) smaller", text)
            for more, fewer, times in events:
                right_answer = (right_answer + int(more or 0) - int(fewer or 0)) * int(times or 1)
        else:
            continue
        assert right_answer == answer, (text, task.ground_truth)
        checked[family] += 1
    assert len(checked) == 8 and min(checked.values()) >= 10 and len(FAMILIES) == 11


def test_tables_against_plain_python():
    checked = Counter()
    for k in range(200):
        task = sources.parse("tables").task(START + k)
        question, family = task.extra_info["question"], task.extra_info["family"]
        drawn = [line for line in task.prompt[0]["content"].split("\n") if line[0] == "|"]
        head, _, *body = [line.strip("| ").split(" | ") for line in drawn]
        columns = {h: [row[j] for row in body] for j, h in enumerate(head)}
        column = next(h for h in sorted(head[2:], key=len, reverse=True) if h in question)
        values = [int(v) for v in columns[column]]
        ranked = [n for _, n in sorted(zip(values, columns[head[0]], strict=True), reverse=True)]
        group = next((g for g in set(columns[head[1]]) if f"{head[1]} {g}" in question), None)
        inside = [(v, row[0]) for v, row in zip(values, body, strict=True) if row[1] == group]
        right = {
            "extreme": ranked[0 if "highest" in question else -1],
            "mean": f"{sum(values) / len(values):.2f}",
            "top_two": "|".join(ranked[:2]),
            "count": str(sum(v > int(bound) for bound in re.findall(r"above (-?\d+)", question) for v in values)),
            "total": str(sum(v for v, _ in inside)),
            "extreme_in_group": min(inside, default=(0, None))[1],
        }
        if family in right:
            assert task.ground_truth == right[family], (family, question)
            checked[family] += 1
    assert len(checked) == 6


def test_units_against_factors_written_out():
    factor, checked = {case["unit"]: case["factor"] for case in records("units_written_out")}, 0
    for k in range(600):
        task = sources.parse("formulas").task(START + k)
        question = task.extra_info["question"]
        if task.data_source == "stem__choice" or not re.match(r"A (train|force|voltage)", question):
            continue
        (a, unit_a), (b, unit_b) = re.findall(r"(\d+) ([A-Za-z^0-9/]+)", question)
        value, unit = task.ground_truth.split()
        expected = float(a) * factor[unit_a] / (float(b) * factor[unit_b]) / factor[unit]
        assert float(value) == pytest.approx(expected, rel=1e-3)
        checked += 1
    assert checked >= 30


def test_the_clues_of_an_order_leave_one_first_and_one_last_letter():
    for index in range(60):
        task = sources.parse("ordering").task(START + index)
        *clues, end = task.prompt[0]["content"].split()
        before, after = zip(*(clue.split("<") for clue in clues), strict=True)
        one, other = (before, after) if end == "first" else (after, before)
        assert {task.ground_truth} == set(one) - set(other)


@pytest.mark.parametrize(*table("domains_difficulty_knob_turns"))
def test_the_difficulty_knob_turns(easy, hard, measure):
    def mean(options):
        tasks = [sources.parse(options).task(START + k) for k in range(40)]
        lengths = [len(task.prompt[0]["content"]) for task in tasks]
        return np.mean(lengths if measure == "prompt" else [task.extra_info["difficulty"] for task in tasks])

    assert mean(hard) > mean(easy)


def test_the_smallest_prompts_fit_the_smallest_models_and_letters_of_choices_are_even():
    for kind in ("arithmetic", "string_trace", "lookup", "ordering"):
        tasks = [sources.parse(kind).task(START + k) for k in range(200)]
        assert max(len(t.prompt[0]["content"]) for t in tasks) <= 32
        assert max(len(t.ground_truth) for t in tasks) <= 4
    tasks = [sources.parse("formulas").task(START + k) for k in range(800)]
    letters = Counter(task.ground_truth for task in tasks if task.data_source == "stem__choice")
    assert set(letters) == set("ABCD") and min(letters.values()) > 60


def test_tasks_do_not_depend_on_the_process():
    code = "import json\nfrom rlkit.domains import sources\nkinds = json.loads(input())\n"
    code += f"print([sources.parse(kind).task({START}).id for kind in kinds])"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command, given = [sys.executable, "-c", code], json.dumps(KINDS)
    run = subprocess.run(command, input=given, capture_output=True, text=True, env=environment)
    assert run.stdout.splitlines()[-1] == str([sources.parse(k).task(START).id for k in KINDS])


def test_data_sets_of_reasoning_gym_that_cannot_be_relied_on_are_refused():
    for dataset in (*REFUSED, "chain_sums"):
        words = "depends on more than the index" if dataset in REFUSED else "Did you mean 'chain_sum'"
        with pytest.raises(UserError, match=words):
            sources.parse({"kind": "reasoning_gym", "dataset": dataset}).task(1)
    with pytest.raises(UserError, match="refuses its options"):
        sources.parse({**GYM[0], "options": {"no_such_option": 1}}).task(1)
    with pytest.raises(UserError, match="has no levels"):
        sources.parse({"kind": "reasoning_gym", "dataset": "gsm_symbolic", "level": 1}).task(1)


MEANING = {
    "next": lambda x, y: abs(x - y) == 1,
    "left": lambda x, y: x < y,
    "same": lambda x, y: x == y,
    "directly": lambda x, y: x + 1 == y,
}


def test_zebra_clues_mean_what_they_say_and_leave_one_solution_and_none_is_idle():
    def true(clue, grid) -> bool:
        (a, v), (b, w) = clue.first, clue.second
        return grid[a][v] == w if clue.kind == "at" else MEANING[clue.kind](grid[a][v], grid[b][w])

    kinds = set()
    for k in range(25):
        houses, clues = puzzle(np.random.default_rng(k), 3, 3)
        grids = [g for g in product(permutations(range(3)), repeat=3) if all(true(c, g) for c in clues)]
        assert grids == [tuple(houses)] == [tuple(g) for g in solutions(clues, 3, 3)]
        assert not any(unique([c for c in clues if c is not clue], 3, 3) for clue in clues)
        kinds |= {clue.kind for clue in clues}
    assert kinds == {*MEANING, "at"}


def test_no_held_out_arc_task_has_a_variant_in_training():
    source = sources.parse("arc")
    tests = {source.task(k).extra_info["arc_id"] for k in range(400)}
    trained = {source.task(HELD_OUT_INDICES + k).extra_info["arc_id"] for k in range(400)}
    assert tests <= {t.id for t in corpus("evaluation")} and trained <= {t.id for t in corpus("training")}
    assert not tests & trained
    plain = source.task(HELD_OUT_INDICES)
    original = next(t for t in corpus("training") if t.id == plain.extra_info["arc_id"])
    assert plain.ground_truth == original.test[0][1].tolist()
