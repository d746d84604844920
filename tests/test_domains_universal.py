# ruff: noqa: E501
"""No answer is right for two different truths, none makes an error or hangs, none is executed: over all scorers.

Add a row to SCORERS: a data_source, how an answer is written, and truths of which no two have the same value.
"""

import random
import time

import pytest

from rlkit.rewards.grading import grade

NUMBERS = [str(n) for n in (0, 1, -1, 7, *range(1001, 1009))] + [f"0.{n}37" for n in range(11, 17)]
FORMULAS = [rf"\sqrt{{{n}}}" for n in (2, 3, 5, 6, 7, 10, 11, 13, 14, 15)] + [
    r"2\pi", "e", "x^2+1", "x+y", "(2,3)", "[2,3)", r"\{4,5,6\}", "x=9", "x>3", "x<3", r"|x|<4", r"\infty", r"-\infty",
    r"\emptyset", r"\mathbb{R}", r"\frac{3}{7}", r"\frac{4}{7}", r"10^{20}", r"10^{-20}", r"e^{-100}", "1,234", r"3 \pmod 7",
    r"4 \pmod 7", r"x^2+C", r"x^3+C", r"\text{Monday}", r"\text{May 2020}", r"\text{May 5, 2020}", r"\text{May 5}",
    "3:4", "11_5", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{cases}x=1\\y=4\end{cases}", r"\frac{\pi}{4}+k\pi",
    "2n+1", r"(-\infty,8)\cup(9,\infty)", r"2\text{ hours }35\text{ minutes}", r"8\text{ hens}, 9\text{ goats}", "E", "i",
]  # fmt: skip
QUANTITIES = [
    "2.5 m",
    "1.6e-19 C",
    "20 degC",
    "451 K",
    "5 kJ/mol",
    "ribosome",
    "Na+",
    "H2O",
    "6.02e23",
    "17 W/Hz",
    "44 dB",
]
SCORERS = {
    "math__x": (r"\boxed{%s}", NUMBERS + FORMULAS),
    "stem_web": (r"\boxed{%s}", NUMBERS[4:] + QUANTITIES),
    "stem__supergpqa": (r"\boxed{%s}", list("ABCDEFGHIJ")),
}
ATOMS = [
    "1e999", "-1e999", "1e-999", "0.000000", "0", r"\infty", r"\frac{0}{0}", r"\frac{1}{0}", r"\emptyset", r"\{\}", "()",
    "[]", "x", "y", "i", "e", "E", r"\pi", "nan", "inf", "K", r"\text{ K}", r"\text{degF}", "units", r"\text{unit}", "=",
    r"\approx", "<", r"\in", r"\mathbb{R}", r"\cup", r"\pm", "or", "and", ",", "|", ":", ";", "!", "^", "_", "10^{10^{10}}",
    "e^{-1000}", "0!", r"\log 0", r"\ln(-1)", "0^0", r"\sum_{n=1}^{\infty}n", r"\int", r"\lim", r"\binom{0}{0}",
    r"0.\overline{9}", "0...", "$", r"\$", "a", "A", "(A)", "B.", "(A) or (B)", "A. B. C. D.", "total", "old", "million",
    "\u221e", "\u0660", r"\ldots", r"\mod 7", r"\equiv", "C", "k", "for all", "none", "1,234", "234, 1", "May 29, 2020",
    "dBm/Hz", "m^9^9^9^9", r"\begin{cases}", r"\\", "{", "}",
]  # fmt: skip
INJECTIONS = [
    "__import__('os').system('touch PWNED')", "exec(\"open('PWNED','w')\")", "open('PWNED','w')", "exit()", "1/0",
    "().__class__.__base__.__subclasses__()", "lambda: open('PWNED','w')", "{0.__class__.__init__.__globals__}",
    "%s%s%s%n", "{ground_truth}", "Symbol('x')+open('PWNED','w')", "Function('f')(__import__('os').getpid())",
    "S('open(1)')", "!!python/object/apply:os.system ['touch PWNED']", "cos\nsystem\n(S'touch PWNED'\ntR.",
    r"\input{/etc/passwd}", r"\write18{touch PWNED}", "`touch PWNED`", "$(touch PWNED)", "<script>touch('PWNED')</script>",
    "9**9**9**9", "5 m**9**9**9**9", "eval(compile('1','','eval'))",
]  # fmt: skip


def odd_answers(count: int) -> list[str]:
    rng = random.Random(5)
    joined = ["".join(rng.choices(ATOMS, k=rng.randint(2, 4))) for _ in range(count)]
    return [*ATOMS, *joined][:count]


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("source", SCORERS)
def test_no_answer_is_right_for_two_truths(source, count):
    form, truths = SCORERS[source]
    assert len(set(truths)) == len(truths)
    for answer in odd_answers(count):
        right = [truth for truth in truths if grade(source, form % answer, truth, {}).correct]
        assert len(right) <= 1, answer


@pytest.mark.parametrize("source", SCORERS)
def test_every_truth_is_right_for_itself_alone(source):
    form, truths = SCORERS[source]
    for answer in truths:
        assert [t for t in truths if grade(source, form % answer, t, {}).correct] == [answer]


@pytest.mark.parametrize("source", SCORERS)
def test_a_degenerate_response_is_wrong_and_soon(source):
    """A quadratic reader takes many seconds for some of these; the bound leaves room for a loaded machine."""
    rng, (form, truths) = random.Random(11), SCORERS[source]
    grade(source, form % "3 m", truths[0], {})
    for _ in range(60):
        piece = "".join(
            rng.choices(
                [*ATOMS, " ", "\n", "`" * 3, "~~~", "Answer:", r"\boxed{", "(", r"\sqrt{"],
                k=rng.randint(1, 3),
            )
        )
        text = piece * (rng.choice([60, 2000, 20_000]) // len(piece))
        start = time.process_time()
        reward = grade(source, rng.choice([form % text, text, "Answer: " + text]), rng.choice(truths), {})
        assert reward.error is None and not reward.parts.get("killed"), text[:200]
        assert time.process_time() - start < 2.0, text[:200]


@pytest.mark.parametrize("source", SCORERS)
def test_no_answer_is_executed(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    form, truths = SCORERS[source]
    for text in INJECTIONS:
        for truth in truths[::5]:
            reward = grade(source, form % text, truth, {})
            assert reward.correct is False and reward.error is None, text
    assert not list(tmp_path.iterdir())
