"""Logic and grids: which answers are right, and that the generated puzzles have one solution."""

from itertools import permutations, product

import numpy as np
import pytest

from rlkit.config import RewardConfig
from rlkit.domains import HELD_OUT_INDICES, sources
from rlkit.domains.arc import corpus
from rlkit.domains.arc import score as score_grid
from rlkit.domains.grading import Grading
from rlkit.domains.logic import puzzle, score_names, score_zebra, solutions, unique
from rlkit.errors import UserError
from rlkit.rewards.grading import grade


def tag(answer):
    return f"Thinking aloud.\n<answer>{answer}</answer>"


GRID = [[1, 0], [0, 2]]
# fmt: off
GRIDS = [
    tag("[[1,0],\n [0,2]]"), tag("[[1 0]\n [0 2]]"), tag("```\n[[1,0],[0,2]]\n```"),
    tag("```json\n[[1, 0],\n[0, 2]]\n```"),
    tag("\n1 0\n0 2\n"), tag("1 0\n0 2"), tag("1, 0\n0, 2"), tag("1,0\r\n0,2"), tag("10\n02"), tag("1\t0\n0\t2"),
    tag("[1, 0]\n[0, 2]"), tag("[1, 0],\n[0, 2]"), tag("| 1 | 0 |\n| 0 | 2 |"), tag("```\n1 0\n0 2\n```"),
    tag("Output:\n1 0\n0 2"), tag("\n\n1  0 \n\n0  2 \n"), tag("**[[1, 0], [0, 2]]**"), tag("`[[1,0],[0,2]]`"),
    tag("Output: [[1, 0], [0, 2]]"), tag(r"\boxed{[[1, 0], [0, 2]]}"), tag("[\n  [1, 0],\n  [0, 2],\n]"),
    tag("[[9]]") + " Correction: " + tag("1 0\n0 2"), "<Answer>\n1 0\n0 2\n</Answer>",
    "The output is:\n```\n1 0\n0 2\n```", "So:\n```python\n[[1, 0], [0, 2]]\n```\nThat is all.",
    "~~~\n[[1,0],[0,2]]\n~~~",
    r"\boxed{[[1, 0], [0, 2]]}",
    r"$\boxed{\left[[1,0],[0,2]\right]}$",
    "**Answer:** [[1,0],[0,2]]", tag(r"$$\begin{pmatrix} 1 & 0 \\ 0 & 2 \end{pmatrix}$$"), tag(r"\[ [[1,0],[0,2]] \]"),
    tag("Row 1: 1 0\nRow 2: 0 2"), tag("Row 0: [1, 0]\nRow 1: [0, 2]"), tag("((1, 0), (0, 2))"),
    tag("<pre>1 0\n0 2</pre>"),
    tag("array([[1, 0],\n       [0, 2]])"), tag("np.array([[1, 0], [0, 2]])."),
    r"\boxed{\begin{bmatrix} 1 & 0 \\ 0 & 2 \end{bmatrix}}", "[[1,0],[0,2]]", "1 0\n0 2", "<think>so</think>\n1 0\n0 2",
    r"\boxed{\text{[[1,0],[0,2]]}}", tag("output_grid = [[1,0],[0,2]]"), tag("The transformed grid is [[1,0],[0,2]]"),
    tag("Here is the output grid: [[1,0],[0,2]]"), tag("Thus, the resulting grid is:\n1 0\n0 2"),
    tag("The predicted output grid for the test input is:\n[[1,0],[0,2]]"),
    r"\boxed{\begin{array}{cc}1&0\\0&2\end{array}}", r"\boxed{\left[\begin{array}{cc}1&0\\0&2\end{array}\right]}",
]
NO_GRIDS = [
    "", "I do not see it.", "Perhaps [[1,0],[0,2]]", "Output: 1 0\n0 2", "[[1,0],[0,2]] [[1,0],[0,2]]",
    tag(""), tag("not a grid"),
    tag("[[1,0],[0,2]] or [[1,0],[0,3]]"),
    tag("[[1,0],[0,2.0]]"), tag("[[1.2,0.1],[0.3,2.9]]"), tag("[[True,0],[0,2]]"), tag("[[1,0],[0,2],[0,0]]"),
    tag("[[1,0],[0]]"),
    tag("[]"), tag("[[]]"), tag("[1,0,0,2]"), tag("[[10,0],[0,2]]"), tag("[[1,0],[0,3]]"), tag("[[1,0,0],[0,2,0]]"),
    tag("1 0\n0 3"), tag("1 0 0\n0 2 0"), tag("1 0"), tag("1 0\n0 2\n\n1 0\n0 3"), tag("1 0\n0 2 or\n1 0\n0 3"),
    tag("1.0 0\n0 2"),
    tag("10 0\n0 2"), tag("1 0\n0"), tag("-1 0\n0 2"), tag("a b\nc d"),
    "<think>" + tag("[[1,0],[0,2]]") + "</think>\nI give up.",
    tag("[[1,0],[0,2]]") + tag("[[0,0],[0,2]]"), "```\n1 0\n0 2\n```\nNo:\n```\n1 0\n0 3\n```",
    tag("x") + "\n```\n1 0\n0 2\n```",
    tag("[[[1,0],[0,2]]]"), tag("[[1,0],[0,2]"), tag("[1,0,0,2]]"), tag("[[1,0][0,2]] [[3]]"), tag("１ ０\n０ ３"),
    tag("[[1,0],[0,2]]") + r" No, \boxed{[[1,0],[0,3]]}", tag("[[1,0],[0,2]] * 2"), tag("[[1,0],[0,2]]+1"),
    tag("[[1,0],[0,2]]%3"), tag("-[[1,0],[0,2]]"), tag("9-[[1,0],[0,2]]"), tag("the transpose of [[1,0],[0,2]]"),
    tag("not [[1,0],[0,2]]"), tag("[[1,0],[0,2]] with 2 replaced by 5"), tag("[[1,0],[0,2]]\nbut turned"),
    tag("the transpose of:\n1 0\n0 2"), tag("not: [[1,0],[0,2]]"), tag("[[1,,0],[0,2]]"), tag("[[1,0],,[0,2]]"),
    tag("1,,0\n0,,2"), tag("2 * ((1,0),(0,2))"), tag("zip((1,0),(0,2))"), tag("row 2: 1 0\nrow 1: 0 2"),
    tag("row 5: 1 0\nrow 5: 0 2"), tag("1$0\n0$2"),
    "Answer: [[1,0],[0,2]] transposed", "Answer: not [[1,0],[0,2]]", 
    "The answer is [[1,0],[0,2]] rotated by 90 degrees.",
    "```\nprint([[1,0],[0,2]])", tag("np.array([[1,0],[0,2]]).T"), tag("np.flip([[1,0],[0,2]])"),
    tag("flip(((1,0),(0,2)))"), tag("((1,0),(0,2)).T"),
    tag("[[1,0],[0,2]].copy()"), tag("The test input is [[1,0],[0,2]]"), tag("input: [[1,0],[0,2]]"),
    tag("For the test input [[1,0],[0,2]] plus 1"), tag("Here is not the output: [[1,0],[0,2]]"),
    r"\boxed{\text{[[1,0],[0,2]]} \text{[[1,0],[0,3]]}}", r"\boxed{\text{[[1,0],[0,2]]}^T}",
    tag("So perhaps [[1,0],[0,2]]"), r"\boxed{\begin{array}{cc}1&0\\0&3\end{array}}",
]



@pytest.mark.parametrize("response", GRIDS)
def test_a_grid_may_be_written_in_many_ways(response):
    assert score_grid(response, GRID, {}).correct is True


@pytest.mark.parametrize("response", NO_GRIDS)
def test_other_grids_and_two_grids_are_wrong(response):
    assert score_grid(response, GRID, {}).correct is False


def test_no_grid_is_never_the_grid_of_one_zero():
    assert not score_grid("I do not see it.", [[0]], {}).correct
    assert not score_grid(tag("nothing"), [[0]], {}).correct
    assert score_grid(tag("0"), [[0]], {}).correct


def test_a_truth_that_is_no_grid_is_an_error():
    for truth in ([[1, 2], [3]], [[10]], [], "no grid", [[True]]):
        with pytest.raises(UserError):
            score_grid(tag("[[1]]"), truth, {})


TABLE = {"header": ["House", "Drink"], "rows": [["1", "tea"], ["2", "milk"]]}


@pytest.mark.parametrize(
    ("answer", "right", "share"),
    [
        ('{"header": ["House", "Drink"],\n "rows": [["1", "Tea "], [2, "milk"]]}', True, 1.0),
        ('```json\n{"header": ["House", "Drink"], "rows": [["1", "tea"], ["2", "milk"]]}\n```', True, 1.0),
        ("The grid:\n{'header': ['House', 'Drink'], 'rows': [['1', '**tea**'], ['２', 'ｍｉｌｋ'],]}", True, 1.0),
        ("{'header': ['House', 'Drink'], 'rows': [['1', 'tea'], ['2', 'water']]}", False, 0.75),
        ("{'header': ['House', 'Drink'], 'rows': [['1', 'tea'], ['2', None]]}", False, 0.75),
        ("{'header': ['House', 'Drink'], 'rows': [['1', ['tea', 'milk']], ['2', 'milk']]}", False, 0.75),
        ("{'header': ['House', 'Pet'], 'rows': [['1', 'tea'], ['2', 'milk']]}", False, 1.0),
        ("{'header': ['House', 'Drink'], 'rows': [['1', 'tea'], ['2', 'milk'], ['3', 'tea']]}", False, 0.0),
        ("{'header': ['House', 'Drink'], 'rows': {'1': 'tea'}}", False, 0.0),
        ("{'header': ['House'], 'rows': [['1', ", False, 0.0),
        ("{'header': ['House', 'Drink'], 'rows': [['1', 'tea'], ['2', 'milk']]} or {'rows': []}", False, 0.0),
        ("[['1', 'tea'], ['2', 'milk']]", False, 0.0),
        ("{'header': 0x" + "f" * 9000 + ", 'rows': [[0x" + "f" * 9000 + "]]}", False, 0.0),
    ],
)
def test_zebra_tables(answer, right, share):
    reward = score_zebra(tag(answer), TABLE, {})
    assert (reward.correct, reward.parts["cell_accuracy"]) == (right, share)


@pytest.mark.parametrize("form", ["```json\n%s\n```", r"\boxed{%s}", "Answer: %s"])
def test_tables_and_orders_may_stand_outside_a_tag(form):
    table = {"header": ["House", "Drink"], "rows": [["1", "tea"], ["2", "milk"]]}
    assert score_zebra(form % table, table, {}).correct
    assert not score_zebra(form % table, {**table, "rows": [["1", "milk"], ["2", "tea"]]}, {}).correct
    assert not score_zebra(str(table), table, {}).correct
    assert score_names(form % ["a", "b"], ["a", "b"], {}).correct
    assert not score_names(form % ["a", "b"], ["b", "a"], {}).correct


@pytest.mark.parametrize("truth", [{}, {"header": ["a"]}, {"header": ["a"], "rows": []}, {"header": "a", "rows": [[]]}])
def test_a_truth_that_is_no_table_is_an_error(truth):
    with pytest.raises(UserError, match="header and rows"):
        score_zebra(tag("{}"), truth, {})


def test_the_share_of_cells_is_paid_only_on_request_and_not_for_the_house_numbers():
    partial = RewardConfig(partial_credit=True)
    half = "{'header': ['House', 'Drink'], 'rows': [['1', 'tea'], ['2', 'water']]}"
    reward = grade("logic__zebra_x", tag(half), TABLE, {}, Grading(partial))
    assert (reward.value, reward.parts["share"], reward.correct) == (0.5, 0.5, False)
    assert grade("logic__zebra_x", tag(half), TABLE, {}).value == 0.0
    numbers = "{'header': ['House', 'Drink'], 'rows': [['1', '?'], ['2', '?']]}"
    assert grade("logic__zebra_x", tag(numbers), TABLE, {}, Grading(partial)).value == 0.0
    other = "{'header': ['House', 'Pet'], 'rows': [['1', 'tea'], ['2', 'milk']]}"
    assert grade("logic__zebra_x", tag(other), TABLE, {}, Grading(partial)).value == 0.0, "a wrong answer paid in full"


LISTS = [
    "['a', 'b c', 'd-e']", "[A, b c, d-e]", "a, b c, d-e", "a,b c,d-e", "1. a\n2. b c\n3. d-e", "a -> b c -> d-e",
    "a → b c → d-e",
    "a, b c, and d-e", "**a**, **b c**, **d-e**", '("a", "b c", "d-e")', "- a\n- b c\n- d-e",
    "1) **a**\n2) **b c**\n3) **d-e**",
    "```json\n[\"a\", \"b c\", \"d-e\"]\n```", "`['a', 'b c', 'd-e']`", r"[\text{a}, \text{b c}, \text{d-e}]",
    r"\text{a, b c, d-e}",
    r"a \to b c \to d-e", r"\text{a} \rightarrow \text{b c} \rightarrow \text{d-e}", r"\left[a, b c, d-e\right]",
    "ａ, ｂ ｃ, ｄ-ｅ", "a; b c; d-e.",
    r"['\text{a}', '\text{b c}', '\text{d-e}']", "“a”, “b c”, “d-e”", r"\textbf{a, b c, d-e}",
    "a, b c and d-e", "a, b c & d-e",
    "The order is: a, b c, d-e", "Final order: a, b c, d-e", "a | b c | d-e", "(1) a, (2) b c, (3) d-e",
    "<b>a</b>, <b>b c</b>, <b>d-e</b>",
]
NO_LISTS = [
    "['a', 'b c'] or ['b c', 'a']", "", "['a', ['b c', 'd-e']]", "['a', 'd-e', 'b c']", "a, b c", "a, b c, d-e, f",
    "a or b c, d-e", "a and b c, d-e", "a, b c or d-e", "Not the order is: a, b c, d-e",
    "The reverse order is: a, b c, d-e", "No such order: a, b c, d-e",
    "3. a\n2. b c\n1. d-e", "3) a, 1) b c, 2) d-e", "2. a, 3. b c, 4. d-e", "1. a, b c, 3. d-e",
    "The order is not: a, b c, d-e", "order: a, b c",
    "a, a, b c, d-e", "[a, b c, d-e], [a, d-e, b c]", "{'a', 'b c', 'd-e'}", "a b c d-e", "a, b, c, d, e",
    "[" * 20_000,
    "a" + " " * 30_000 + "b", ("a" + " " * 100) * 400, "a" + "\n" * 30_000 + "b", "-" * 40_000, "1. " * 10_000,
    "a," * 60_000, "['a'" + "," * 9000,
    "a, b c, d-e" + " " * 60_000, "(" * 40_000, "[0x" + "f" * 9000 + "]",
]


@pytest.mark.parametrize("text", LISTS)
def test_an_order_may_be_written_in_many_ways(text):
    assert score_names(tag(text), ["A", "b c", "d-e"], {}).correct
    assert score_names(rf"So \boxed{{{text}}}.", ["A", "b c", "d-e"], {}).correct
    assert score_names(tag(rf"\boxed{{{text}}}"), ["A", "b c", "d-e"], {}).correct


@pytest.mark.parametrize("text", NO_LISTS)
def test_other_orders_and_two_orders_are_wrong(text):
    assert not score_names(tag(text), ["a", "b c", "d-e"], {}).correct
    assert not score_names(rf"So \boxed{{{text}}}.", ["a", "b c", "d-e"], {}).correct


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("<answer>n12</answer>", True), (tag("\n N12 \n"), True), (tag("'n12'."), True), (tag("**n12**"), True),
        (r"\boxed{n12}", True), (r"\boxed{\text{n12}}", True), (r"\boxed{\mathrm{n12}}", True),
        (tag(r"\boxed{n12}"), True), (tag("ｎ12"), True), (tag("n13") + r" No, \boxed{n12}", True),
        (tag(r"\texttt{n12}"), True), ("Answer: n12", True), ("```\nn12\n```", True), ("**Answer:** n12", True),
        ("Answer: n12 or n13", False), (tag("The node is n12"), True), (tag("The node is not n12"), False),
        (tag("the node is n12 or n13"), False), ("```\nn12\n```\n```\nn13\n```", False),
        ("Answer: n12\nAnswer: n13", False), (tag(""), False), (tag("n12, n13"), False), (tag("n12 or n13"), False),
        (tag("n13"), False), ("n12", False), (r"\boxed{n12} or \boxed{n13}", False),
        (tag("n12") + r" No, \boxed{n13}", False), (tag("n12") + tag("n13"), False),
        (rf"<think>{tag('n12')}</think> unknown", False), ("<answer>n12", False), (tag("not n12"), False),
        (tag("n\u200b12"), False), (tag("п12"), False), (r"\boxed{n12, n13}", False),
        (tag("['n12', 'n13']"), False),
    ],
)  # fmt: skip
def test_nodes(response, right):
    assert score_names(response, "n12", {}).correct is right


def test_orders_and_paths():
    assert score_names(tag("['Blue-Jay', 'owl']"), ["blue-jay", "Owl"], {}).correct
    assert not score_names(tag("['owl', 'blue-jay']"), ["blue-jay", "owl"], {}).correct
    assert score_names(tag("A → B → C"), "['A', 'B', 'C']", {}).correct
    assert score_names(tag("A, B, C"), ["A", "B", "C"], {}).correct
    for truth in (5, "", ".", [], ["a", ""], [["a"]], {"a": 1}, None):
        with pytest.raises(UserError):
            score_names(tag("a"), truth, {})
# fmt: on


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
