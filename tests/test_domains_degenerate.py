"""Tables, logic, grids and IFEval: no answer is right for two truths, and no response makes an error or takes long.

Truths of one scorer differ in value: none is another's percentage, multiple of a thousand or neighbour within 0.1 %.
"""

import json
import random
import time

import pytest

from rlkit.domains import resolve
from rlkit.rewards.grading import grade

RNG = random.Random(5)
PRIMES = [n for n in range(11, 1300) if all(n % k for k in range(2, 37) if k < n)]
FIGURES = [
    *(str(n) for n in PRIMES[:60]),
    *(f"{n}.{n % 9 + 1}" for n in PRIMES[60:120]),
    *(f"-{n}" for n in PRIMES[120:140]),
    *(f"{n / 1000:.4f}" for n in PRIMES[140:160]),
    *(f"{n}.{n % 7 + 1}%" for n in PRIMES[160:180]),
    *(
        "0",
        "North",
        "South Dakota",
        "2019-20",
        "yes",
        "1|2",
        "1|2|3",
        "North|South",
        "8,765,432",
        "$9,200.5",
        "1e-9",
    ),
    *("9007199254740992", "9007199254740993", "1999-2000", "n/a", "3rd", "5²", "A", "total", "1.6e-19"),
]
NAMES = [a + b for a in "abcdefghij" for b in "klmnopqrstuvwxyzabcd"]
ORDERS = [RNG.sample(NAMES, 3 + k % 3) for k in range(80)]
GRIDS = [[[RNG.randrange(10) for _ in range(2 + k % 3)] for _ in range(3 + k % 4)] for k in range(200)]
TABLES = [
    {"header": ["House", "Pet"], "rows": [[str(i + 1), p] for i, p in enumerate(RNG.sample(NAMES, 3))]}
    for _ in range(80)
]
# fmt: off
ODD = [
    "", " ", "0", "-0", "0.0", "0.000000", "1e999", "-1e999", "1e308 billion", "1e-999", "nan", "NaN%", "inf",
    "-inf", "∞", r"\infty",
    "0/0", "1e5000", "9" * 90, "9" * 5000, "0x10", "1_000", "None", "null", "True", "any", "all", "*", ".*", "%",
    "$", "?", "x", "n",
    "{}", "[]", "()", "[[]]", "[[[]]]", "|", "||", ",", ".", "...", "1|2|3|4", "or", "and", "yes or no", "5 or 7",
    "(A) or (B)",
    "≈", "about", "million", "5 million", "5%", "500%", "0.05", "50", "1 200", "1,2", "1 2", "12 or 13",
    "11|13|17", "11, 13, 17",
    "11 to 1300", "11-1300", ">10", "<1300", "≥ 11", "11±1300", "11…1300", "2018.5", "101.5", "9.007e15",
    "9007199254740992.5",
    "North or South", "North South", "North, South Dakota", "none of the above", "both", "A, B, C, D", "ABCD",
    "A. B. C. D.",
    "\u200b", "\x00", "\ud800", "é", "９", "１１", "①", "²", "½", "Ⅻ", "٥", "one", "zero", "eleven or thirteen",
    "twenty", "dozen",
    "__import__('os')", "1 if x else 2", "lambda: 0", "exec('1')", "{{7*7}}", "%s", "{0}", "${x}", "<script>",
    "<answer>", "</answer>",
    "</think>", "<think>", "Final Decision: Yes", "correct", "the right answer", "as in the table", "see above",
    "[0-9]+", "\\d+", "^$",
    "0 0\n0 0", "[[0, 0], [0, 0]]", "[[0,0],[0,0]] or [[1,1],[1,1]]", "0\n0", "[[0-9]]", "[[.5, .5], [.5, .5]]",
    "[[True]]", "[[1e0]]",
    "['a', 'b'] or ['b', 'a']", "[['a', 'b'], ['b', 'a']]", "{'a', 'b'}", "a -> a -> a", "a|b", "not a",
    "{'header': [], 'rows': []}",
    "{'header': ['House', 'Pet'], 'rows': [[]]}",
    "{'header': ['House', 'Pet'], 'rows': [['1', ''], ['2', ''], ['3', '']]}",
    "{'header': ['House', 'Pet'], 'rows': [['1', None], ['2', None], ['3', None]]}", "[0x" + "f" * 5000 + "]",
    "'" * 99, '"', "`", "**",
]
# fmt: on
SCORERS = {
    "table__hitab": (FIGURES, str),
    "logic__ordering_puzzle_dataset": (ORDERS, ", ".join),
    "logic__graph_logical_dataset": (NAMES, str),
    "simulation__arcagi1": (GRIDS, json.dumps),
    "logic__zebra_puzzle_dataset": (TABLES, json.dumps),
}


@pytest.mark.parametrize("name", SCORERS)
def test_no_answer_is_right_for_two_truths(name):
    truths, text = SCORERS[name]
    spelled = [text(truth) for truth in truths]
    hedges = [f"{a} or {b}" for a, b in zip(spelled, spelled[7:], strict=False)][:20]
    hedges += ["|".join(spelled), ", ".join(spelled[:9]), " ".join(spelled[:9]), "\n".join(spelled[:9])]
    assert len(set(spelled)) >= 80 and len(ODD) + len(hedges) >= 150
    form = r"\boxed{%s}" if name.startswith("table") else "<answer>%s</answer>"
    score = resolve(name)
    for answer in [*ODD, *hedges, *spelled[::7]]:
        response = form.replace("%s", answer)
        right = [truth for truth in truths if score(response, truth, {}).correct]
        assert len(right) == (answer in spelled) or (len(right) <= 1 and answer in ODD), (response, right)


PIECES = [
    "a", " ", "\n", "[", "]", "{", "}", "(", ")", "```", "~~~", "`", "1", "0", ",", "|", "-", "->", "→", ".",
    "e", "**", "*", "\\boxed{", "\\text{", "\\frac{", "<answer>", "</answer>", "<think>", "</think>", "1e999",
    "\\", "$", "%", "&", "_", "'", '"', "0x", "∞", "\u200b", "\x00", "\ud800", "é", "９", "Answer:", "answer is",
    "####", " and ", " or ", "<<", ">>", "\t", "\r\n", "[[1,0],[0,2]]", "['a', 'b']", "7301.5", "million",
    "\\left[", "~", "≈", "no. ", "http://", "a@b",
]  # fmt: skip
IFEVAL = {
    "detectable_format:title": {},
    "length_constraints:number_sentences": {"num_sentences": 3, "relation": "at least"},
    "detectable_format:json_format": {},
    "detectable_format:number_bullet_lists": {"num_bullets": 3},
    "length_constraints:nth_paragraph_first_word": {
        "num_paragraphs": 3,
        "nth_paragraph": 1,
        "first_word": "x",
    },
    "change_case:english_lowercase": {},
    "language:response_language": {"language": "de"},
    "detectable_format:number_highlighted_sections": {"num_highlights": 2},
}
ROWS = {name: (truths[0], {}) for name, (truths, _) in SCORERS.items()}
ROWS["ood__ifeval"] = (list(IFEVAL.values()), {"instruction_id_list": list(IFEVAL)})


def degenerate(rng: random.Random) -> str:
    """A response of up to 300,000 characters such as small policies emit: few pieces, repeated."""
    count = rng.choice([1, 30, 1000, 30_000, 100_000])
    body = "".join(rng.choices(PIECES, k=rng.choice([1, 1, 2, 3]))) * count
    body = rng.choice(
        [body, rng.choice(PIECES) + body + rng.choice(PIECES), "".join(rng.choices(PIECES, k=300))]
    )
    return rng.choice([body, f"<answer>{body}</answer>", rf"\boxed{{{body}}}", f"```\n{body}\n```"])[:300_000]


@pytest.mark.parametrize("name", ROWS)
def test_no_response_makes_an_error_or_takes_long(name):
    truth, info = ROWS[name]
    rng = random.Random(11)
    for _ in range(100):
        response = degenerate(rng)
        start = time.process_time()
        reward = grade(name, response, truth, info)
        spent = time.process_time() - start  # of this process: other work on the machine does not count
        assert reward.error is None and not {"exception", "killed"} & set(reward.parts), response[:200]
        assert spent < 2, (spent, len(response), response[:100])
