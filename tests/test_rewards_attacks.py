"""No scorer runs what a response says: nothing is written, no variable is read, and no later verdict changes."""

import tempfile
from pathlib import Path

import pytest
from cases import records

from rlkit.config import RewardConfig
from rlkit.domains import resolve, scorers
from rlkit.rewards import Router

BOX = ["42", "4", r"\frac{1}{2}"]
TRUTHS = {
    "codegen__x": {"inputs": ["1\n"], "outputs": ["1\n"]},
    "simulation__cruxeval-o": {"functional": "def f(x):\n    return x"},
    "simulation__codeio": '"output": 1',
    "simulation__arcagi1": [[1]],
    "logic__zebra_x": {"header": ["House", "Drink"], "rows": [["1", "tea"]]},
    "logic__ordering_x": ["a", "b"],
    "stem__supergpqa": "A",
}
INFO = {
    "simulation__cruxeval-o": {"input": "1", "output": "1"},
    "ifeval": {"instruction_id_list": ["punctuation:no_comma"]},
}
GYM = {
    "countdown": {"numbers": [1, 2], "target": 3},
    "puzzle24": {},
    "simple_integration": {"variable": "x", "integrand": "x"},
    "intermediate_integration": {"variable": "x", "integrand": "x"},
    "polynomial_multiplication": {"result": "x"},
    "string_insertion": {},
    "spiral_matrix": {},
    "binary_matrix": {},
    "n_queens": {"valid_answers": ["Q"]},
    "chain_sum": {},
}
WAYS = (r"\boxed{%s}", "<answer>%s</answer>", "```python\n%s\n```", "Answer: %s", "%s")


def injections(mark):
    """Python, sympy, format strings, pickles and YAML tags that would write the environment to a file."""
    return [case["text"].replace("MARK_FILE", str(mark)) for case in records("injections")]


def rows(mark):
    """Every registered scorer with every injection, in the places where answers stand."""
    sources = [name.replace("*", "x") for name in scorers.names()]
    sources += [name for name in (*TRUTHS, *INFO) if name not in sources]
    for source in [s for s in sources if resolve(s) is not resolve("codegen__x") or s == "codegen__x"]:
        if resolve(source) is resolve("reasoning_gym__x"):
            continue  # see below
        programs = resolve(source) is resolve("codegen__x")  # they are run, in the sandbox
        for text in injections(mark):
            for way in WAYS[2:3] if programs else WAYS:
                yield source, way % text, TRUTHS.get(source, "42"), INFO.get(source)
    for name, metadata in GYM.items():
        info = {"entry": {"answer": "7", "metadata": {"source_dataset": name, **metadata}}}
        for text in injections(mark):
            yield f"reasoning_gym__{name}", f"<answer>{text}</answer>", "7", info


def test_no_scorer_runs_what_a_response_says(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "hush")
    with tempfile.TemporaryDirectory() as folder, Router(RewardConfig(num_workers=2)) as router:
        honest = [("math__x", r"\boxed{3}", "4", None), ("math__x", r"\boxed{4}", "4", None)]
        attacks = list(rows(Path(folder, "mark")))
        rewards = router.grade_rows(attacks)
        bought = [(a[0], a[1]) for a, r in zip(attacks, rewards, strict=True) if r.correct]
        assert [x for x in bought if x[0] != "ifeval"] == []
        assert [r.correct for r in router.grade_rows(honest * 20)] == [False, True] * 20
        assert not list(Path(folder).iterdir())


def test_no_verdict_depends_on_the_units_that_were_read_before():
    """pint adds each unit with a prefix to its own, and would then take that for one to be prefixed."""
    prefixed = [
        ("math__x", rf"\\boxed{{5 \\text{{ {unit}}}}}", "5 kg", None) for unit in ("millimeter", "centim")
    ]
    twice = [
        ("math__x", r"\boxed{5 \text{ m}}", r"5 \text{ kilomillimeter}", None),
        ("stem__x", r"\boxed{5 \text{ decamillimeter}}", r"5 \text{ cm}", None),
    ]
    with Router(RewardConfig(num_workers=1)) as router:
        before, *_, after = (router.grade_rows(rows) for rows in (twice, prefixed, twice))
    assert [r.correct for r in (*before, *after)] == [False] * 4


FN = {"fn_name": "f", "inputs": [[1]], "outputs": [{"a": 1}]}
CLAIM = {"functional": "def f(n):\n    return 'a ' * n"}


@pytest.mark.parametrize(
    ("source", "program", "truth", "info"),
    [
        ("codegen__x", "def f(x): return {1 << 10**7: 1}", FN, None),
        ("codegen__x", "print('1e' + '9' * 200)", {"inputs": ["1"], "outputs": ["1.5"]}, None),
        ("simulation__cruxeval-i", "assert f(8_000_000) == 'a'", CLAIM, {"output": "'a'"}),
    ],
)
def test_a_value_of_great_size_is_wrong_without_an_end_of_the_worker(source, program, truth, info):
    with Router(RewardConfig(num_workers=1, timeout=6, total_timeout=6)) as router:
        [reward] = router.grade_rows([(source, f"```python\n{program}\n```", truth, info)])
    assert reward.correct is False and not {"killed", "exception"} & set(reward.parts), reward


def test_the_scorers_of_reasoning_gym_that_evaluate_are_all_attacked():
    reasoning_gym = pytest.importorskip("reasoning_gym")
    found = set()
    for path in Path(reasoning_gym.__file__).parent.rglob("*.py"):
        text = path.read_text()
        scoring = text.partition("def score_answer")[2].partition("\nclass ")[0]
        if "eval(" in scoring.replace('eval(entry["answer"])', "") or "parse_expr(" in scoring:
            found.add(path.stem)
    # Evaluate only what the item holds.
    assert found - {"bitwise_arithmetic", "propositional_logic"} <= set(GYM)
