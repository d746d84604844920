"""Logic, grids, simulation, tables and science: which answers are right."""

import pytest

from rlkit.config import RewardConfig
from rlkit.domains import sources
from rlkit.domains.grading import Grading
from rlkit.domains.reasoning import REFUSED
from rlkit.domains.reasoning import score as score_gym
from rlkit.domains.simulation import score_codeio
from rlkit.domains.stem import score as score_stem
from rlkit.domains.stem import score_choice
from rlkit.errors import UserError
from rlkit.rewards import Router


@pytest.fixture(scope="module")
def router():
    with Router(RewardConfig(num_workers=1)) as router:
        yield router


def boxed(answer):
    return rf"By the usual steps, \boxed{{{answer}}}."


def tag(answer):
    return f"Thinking aloud.\n<answer>{answer}</answer>"


STEM = [
    ("107", "10^7", False), ("10^7", "10^{7}", True), ("x^3", "x3", False), ("3n", "3^n", False), ("42", "4_2", False),
    ("1s2 2s1", "1s^2 2s^1", True), ("Cl^-", "Cl-", True), ("Fe^{3+}", "Fe3+", True), ("Fe^{3+}", "Fe2+", False),
    ("2 farads", "√2 farads", False), ("±4 joules", "4 joules", False), ("when y ≤ 3", "when y ≥ 3", False),
    ("4! orders", "4 orders", False), ("2:1 mixture", "2.1 mixture", False), ("40% water", "40 water", False),
    ("vitamin", "vitamin A", False), ("vitamin A", "Vitamin A", True), ("the plan", "plan a", False),
    ("silica", "silicon", False), ("magnesia", "magnesium", False), ("spectra", "spectrum", True),
    ("ions", "ion", True), ("axes", "axis", True), ("gases", "gas", True),
    ("(7)", "7", True), ("(7)", "-7", False), ("sp^2", "sp2", True), (r"N_2 \to 2N", "N2 -> 2N", True),
    ("9.8 m/s^2", r"9.8\ \mathrm{m/s^2}", True), (r"9.80\,\mathrm{m\,s^{-2}}", "9.8 m/s^2", True),
    ("5 kg", "5000 g", True), ("5 kg", "5 g", False), ("3.0e8 m/s", r"3 \times 10^8 \text{ m/s}", True),
    ("CO2", "CO_2", True), ("CO", "Co", False), ("Ca2+", "Ca+", False), (r"\mathrm{SO_4^{2-}}", "SO42-", True),
    ("bacteria", "bacterium", True), ("nuclei", "the nucleus", True), ("decrease", "increase", False),
    ("not possible", "possible", False), ("24.3 billion", "24,300,000,000", True),
    ("24.3 million", "24.3 billion", False), ("101325 Pa", "1 atm", True), ("100 kPa", "1 atm", False),
    ("6.62e-34 J s", "6.626e-34 J s", True), ("6.2e-34 J s", "6.626e-34 J s", False),
    (r"\frac{1}{2}mv^2", "mv^2/2", True), ("2018", "2019", False), ("10 N", "10 J", False), ("5 mN", "5 MN", False),
    ("1.2 mol", "1.2 mmol", False), ("5 eV", "8.01e-19 J", True), ("12 V", "12", True), ("1e999", "2.5", False),
    ("2018.5", "2018", False), ("2018.5", "2019", False), ("1000.4", "1000", True), ("1e999", "12 m/s", False),
    (r"\infty \text{ m/s}", "12.5 m/s", False), ("0.000000", r"1.6 \times 10^{-19}", False),
    ("5 dBm/Hz", "5 W/Hz", False), ("2 m", "5 dBm/Hz", False), (r"12.5\%", "12.5%", True),
    (r"12.5\%", "0.125", True), (r"12.5\%", "12.5", True), (r"0.125\%", "0.125", False), (r"1250\%", "12.5", False),
    (r"300\%", "3", False), ("25 K", "25 °C", False), ("25 degrees Celsius", "25 °C", True),
    ("9.8 meters per second squared", "9.8 m/s^2", True), ("It increases", "increases", True),
    (r"9.8\text{ to }98", "9.8 m/s^2", False), (r"3.00\times10^8\text{ m/s}", "3 × 10^8 m/s", True),
    (r"-1.6\times10^{-19}\text{ C}", "-1.6 × 10^-19 C", True), (r"2\times10^{-3}\text{ g}", "2 × 10^-3 kg", False),
    (r"6.63\times10^{-34}\text{ J}\cdot\text{s}", "6.63 × 10^-34 J s", True), ("300000 km/s", "3 × 10^8 m/s", True),
    ("3 × 10^7 m/s", "3 × 10^8 m/s", False), (r"10^5 \text{ V}", "10^5 V", True), ("1 eV", "1.602 × 10^-19 J", True),
    (r"T\propto\sqrt{L}", "T ∝ √L", True), (r"T\propto L", "T ∝ √L", False), (r"^{14}\text{C}", "14C", True),
    (r"^{12}\text{C}", "14C", False), (r"1.6\times10^{-19}\text{ C}", "1.6 x 10^-19 C", True),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "truth", "right"), STEM)
def test_science_answers(answer, truth, right):
    assert score_stem(boxed(answer), truth, {}, Grading(RewardConfig())).correct is right


@pytest.mark.parametrize(
    ("response", "truth", "right"),
    [
        (boxed("C"), "C", True), (boxed("(c)"), "C", True), (boxed(r"\textbf{(C)}"), "C", True),
        (boxed("C) the cell wall"), "C", True), ("**Answer:** (C)", "C", True),
        ("Answer: A\nOn reflection:\nAnswer: C", "C", True), ("The answer is C.", "C", True), ("C", "C", True),
        (boxed("CANNOT D"), "A", False), (boxed("A or C"), "A", False), (boxed("ABCDEFGHIJ"), "A", False),
        (boxed("(A) or (B)"), "A", False), (boxed("A. B. C. D."), "A", False),
        (boxed("(A) (B) (C) (D)"), "A", False), (boxed("A: B"), "A", False), (boxed("(A) 12 (B) 13"), "A", False),
        (boxed("A. yes, or B"), "A", False), (boxed("C. Vitamin D."), "C", True),
        (boxed("C) hepatitis B"), "C", True), (boxed("C (Paris)"), "C", True), (boxed("C - Paris"), "C", True),
        (boxed("C – Paris"), "C", True), (boxed("C, Paris"), "C", True), (boxed("C = 5"), "C", True),
        (boxed("C (I and II)"), "C", True), (boxed("C (vitamin B deficiency)"), "C", True),
        (boxed("C. A large increase"), "C", True), (boxed("C. Hepatitis B"), "C", True),
        (boxed("C (or D)"), "C", False), (boxed("C (D)"), "C", False), (boxed("C (possibly D)"), "C", False),
        (boxed("C (D is possible)"), "C", False), (boxed("C (D?)"), "C", False), (boxed("C, maybe D"), "C", False),
        (boxed("C - D"), "C", False), (boxed("C; alternatively D"), "C", False), (boxed("C, D, E"), "C", False),
        (boxed("(C) is wrong"), "C", False), (boxed("(C) is incorrect; take D"), "C", False),
        (boxed("C, not"), "C", False), (boxed("(C) cannot be true"), "C", False), (boxed("C, actually D"), "C", False),
        (boxed("C. False. It is D"), "C", False), (boxed("(C) is eliminated, leaving A"), "C", False),
        (boxed("C. False"), "C", True), (boxed("C. is increasing"), "C", True), (boxed("C. No"), "C", True),
        (boxed("C. Not enough information"), "C", True), (boxed("(C) cannot be determined"), "C", True),
        (boxed("C. is not continuous"), "C", True), (boxed("C: cannot move"), "C", True),
        (boxed("A (not C)"), "C", False), (boxed("Ｃ"), "C", True),
        ("Answer: **C** because the mass is constant.", "C", True), ("The answer is C because A is wrong.", "C", True),
        ("Answer: C is correct.", "C", True), ("Answer: C is the correct answer.", "C", True),
        (boxed(r"\textbf{C} \text{ since } v = at"), "C", True), (boxed(r"C\quad\text{(Copper)}"), "C", True),
        (r"Answer: \(C\)", "C", True), (r"Answer: **\[C\]**", "C", True), ('Answer: "C"', "C", True),
        (boxed("(C) Both A and D"), "C", True), (boxed("C. Neither A nor B"), "C", True),
        ("Answer: C is the correct answer or D.", "C", False), (boxed("C because D is right, or D"), "C", False),
        (boxed("(C) fails, so A"), "C", False), (boxed("C. So A"), "C", False),
        ("Answer: **C** (Option C)", "C", True), ("Answer: **C** (Option D)", "C", False),
        ("The answer is (C), not (A).", "C", True), ("The answer is (C), not (A).", "A", False),
        ("Answer: C, not A or B", "C", False), ("Answer: not (A), (C)", "C", False), (boxed("C. It is D"), "C", False),
        (boxed("(C) is rejected"), "C", False),
        (boxed("C because it is wrong, hence A"), "C", False), (boxed("(C) Both, and D"), "C", False),
        ("The answer is C. The answer is D.", "C", False), ("The answer is C; or D.", "C", False),
        (boxed("（Ｃ）"), "C", True), (boxed(r"\mathbf{C}"), "C", True), (boxed(r"\text{C. } 12"), "C", True),
        ("Answer: **C. the cell wall**", "C", True), ("**Answer:** `C`", "C", True),
        ("The answer is **(C)**.", "C", True), ("The correct answer is option C.", "C", True), ("**C**", "C", True),
        ("I choose C.", "C", True), ("I choose C or D.", "C", False), ("I choose carefully.", "C", False),
        ("A cell has a wall, so I give up.", "A", False), ("", "A", False),
    ],
)  # fmt: skip
def test_multiple_choice_never_guesses(response, truth, right):
    assert score_choice(response, truth, {}).correct is right


@pytest.mark.parametrize(
    ("response", "truth", "right"),
    [
        ('```json\n{"output": {"b": [1, 2.0]}}\n```', '"output": {"b": [1, 2]}', True),
        ('```json\n{"output": 1}\n```\nNo:\n```json\n{"output": 2}\n```', '"output": 2', True),
        (r'So \boxed{"output": 7}', '"output": 7', True),
        ('It gives {"output": [1]} in the end.', '"output": [1]', True),
        ('{\n "output": [5]\n}\nAgain:\n{\n "output": [5]\n}\nAgain:\n{\n "outp', '"output": [5]', True),
        ('It is {"output": "UI"}. It is {"output": "UI"}. It is {"outp', '"output": "UI"', True),
        ('It is {"output": 1}. No, it is {"output": 2}.', '"output": 1', False),
        ("```json\n[1, 2]\n```", '"output": [1, 2]', True),
        ("```python\n{'output': None}\n```", '"output": null', True),
        ('```json\n{"output": "true"}\n```', '"output": true', True),
        ('```json\n{"output": "[1, 2]"}\n```', '"output": [1, 2]', True),
        ('```json\n{"output": 1}\n```', '"output": true', False),
        ('```json\n{"output": NaN}\n```', '"output": null', False),
        ('```json\n{"output": NaN}\n```', '"output": NaN', True),
        ('```json\n{"output": 3}\n```', '"output": Infinity', False),
        ('```json\n{"output": 1e999}\n```', '"output": 7301.5', False),
        ('```json\n{"output": 0.0}\n```', '"output": 1e-7', False),
        ('```json\n{"output": {"a": 1, "a": 2}}\n```', '"output": {"a": 1}', False),
        ('```json\n{"output": [2, 1]}\n```', '"output": [1, 2]', False),
        ('```json\n{"output": 1, "output2": 2}\n```', '"output": 1', False),
        ('```json\n{"output": 1, "input": 2}\n```', '"output": 1', False),
        ('{"input": 3, "note": "x"}', '"input": 3', False),
        ('```json\n{"output": 1, "x": 2}\n```', '"output": {"output": 1, "x": 2}', True),
        ('```json\n{"output": {"output": 1, "x": 2}}\n```', '"output": {"output": 1, "x": 2}', True),
        (r'\boxed{\{"output": 7\}}', '"output": 7', True), (r'\boxed{\{"output": 8\}}', '"output": 7', False),
        (r'\boxed{\text{"output": 7}}', '"output": 7', True),
        (r'\boxed{\text{\{"output": "a\_b"\}}}', '"output": "a_b"', True),
        (r'\boxed{\texttt{{"output": [7]}}}', '"output": [7]', True), (r"\boxed{\text{7}}", '"output": 7', True),
        (r'\boxed{\{"output": 7, "x": 1\}}', '"output": 7', False), ("nothing", '"output": 1', False),
        ('```json\n{"output": 5}\n```\n\\boxed{6}', '"output": 5', False),
        ('```json\n{"output": 5}\n```\n\\boxed{6}', '"output": 6', True),
        ('\\boxed{6}\n```json\n{"output": 5}\n```', '"output": 5', True),
    ],
)  # fmt: skip
def test_predicted_outputs(response, truth, right):
    assert score_codeio(response, truth, {}).correct is right


@pytest.mark.parametrize(
    ("claim", "right"),
    [
        ("assert f('abc') == 'cba'", True), ("assert 'cba' == f('abc')", True), ("assert f('abc') == 'abc'", False),
        ("assert f('') == ''", False), ("assert True", False), ("pass", False),
        ("assert f('abc') == f('abc')", False), ("assert f('abc') == 'cb' + 'a'", False),
        ("assert f('abc') == 'cba' or True", False), ("f = lambda s: 'x'\nassert f('abc') == 'x'", False),
    ],
)  # fmt: skip
def test_cruxeval_wants_one_true_assertion_about_the_given_input(router, claim, right):
    truth, info = {"functional": "def f(s):\n    return s[::-1]"}, {"input": "'abc'", "output": "'cba'"}
    assert claimed(router, claim, truth, info).correct is right


def claimed(router, claim, truth, info, mode="o"):
    return router.grade_rows([(f"simulation__cruxeval-{mode}", f"```python\n{claim}\n```", truth, info)])[0]


@pytest.mark.parametrize(
    ("claim", "info"),
    [
        ("assert len([3, 1]) == 2", {"input": "[3, 1]", "output": "[1, 3]"}),
        ("assert list([3, 1]) == [3, 1]", {"input": "[3, 1]", "output": "[1, 3]"}),
        ("assert list([1, 3]) == [1, 3]", {"output": "[1, 3]"}),
        ("assert sorted([3, 1]) == [1, 3]", {"input": "[3, 1]", "output": "[1, 3]"}),
        ("assert eval('[1, 3]') == [1, 3]", {"output": "[1, 3]"}),
    ],
)
def test_cruxeval_wants_an_assertion_about_what_the_program_defines(router, claim, info):
    truth = {"functional": "def f(x):\n    return sorted(x)"}
    reward = claimed(router, claim, truth, info)
    assert (reward.correct, reward.error) == (False, None)
    helper = {"functional": f"def g(x):\n    return x\n\n{truth['functional']}"}
    about_it = claim.replace("len", "g").replace("list", "g")
    assert not claimed(router, about_it, helper, info).correct, "a helper is not the function"
    assert claimed(router, "assert f([3, 1]) == [1, 3]", truth, info).correct


def test_cruxeval_reads_no_assertion_of_great_length_and_wants_the_input(router):
    truth = {"functional": "def f(x):\n    return len(x)"}
    for count, right in ((9, True), (200_000, False)):
        reward = claimed(router, f"assert f('{'a' * count}') == {count}", truth, {"output": str(count)}, "i")
        assert (reward.correct, reward.error) == (right, None)
    lacking = claimed(router, "assert f(1) == 1", {"functional": "def f(x): return x"}, {})
    assert "cruxeval needs" in lacking.error


def test_an_answer_that_python_warns_of_prints_nothing(capfd):
    row = ("simulation__codeio", "```\n[1if 2else 3, '\\d']\n```", '"output": 1', {})
    with Router(RewardConfig()) as fresh:
        rewards = fresh.grade_rows([row] * 2)
    assert [reward.correct for reward in rewards] == [False] * 2 and "Warning" not in capfd.readouterr().err


def gym(answer, truth, info):
    return score_gym(tag(answer), truth, info, Grading(RewardConfig())).correct


def test_reasoning_gym_scores_its_own_tasks():
    info = {"entry": {"answer": "12", "metadata": {"source_dataset": "chain_sum"}}}
    assert gym(" 12 ", "12", info) and not gym("13", "12", info) and gym("12", "12", {"dataset": "chain_sum"})
    assert not score_gym("12", "12", info, Grading(RewardConfig())).correct  # it was asked for in tags
    integral = "-125*x**5 + 625*x**4 - 1250*x**3 + 1250*x**2 - 625*x + C"
    integrand = {"source_dataset": "intermediate_integration", "integrand": "-(5*x - 5)**4", "variable": "x"}
    assert gym(integral, integral, {"entry": {"metadata": integrand}})
    shifted = {"source_dataset": "bitwise_arithmetic", "problem": "((0x74ab << 0x1) >> 0x0)"}
    assert gym("0xe956", "0xe956", {"entry": {"metadata": shifted}}), "it evaluates its problem"
    number = {"entry": {"metadata": {"source_dataset": "complex_arithmetic", "result": [3, -2]}}}
    assert gym("3 - 2i", "3 - 2i", number) and not any(
        gym(nan, "3 - 2i", number) for nan in ("nan", "1+NaNi")
    )
    halts = {"entry": {"metadata": {"source_dataset": "game_of_life_halting"}}}
    assert [gym(said, "False", halts) for said in ("False", "false", "True", "no")] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(UserError, match="source_dataset"):
        gym("12", "12", {})


def test_every_data_set_of_reasoning_gym_gives_its_own_answer_full_marks(router):
    from reasoning_gym.factory import DATASETS

    names = sorted(set(DATASETS) - set(REFUSED))
    tasks = [sources.parse({"kind": "reasoning_gym", "dataset": name}).task(7) for name in names]
    rewards = router.grade([(task, tag(task.ground_truth)) for task in tasks])
    wrong = [(n, r.error) for n, r in zip(names, rewards, strict=True) if not r.correct]
    assert not wrong and len(names) > 80
