"""Mathematics: generated problems, bare arithmetic or families with worked solutions, and the scorer of answers.

The box convention is MATH's (Hendrycks et al. 2021), `####` is GSM8K's (Cobbe et al. 2021)."""

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from rlkit.domains import Source, scorer, sources
from rlkit.domains.answers import final_answer, given, side_by_side
from rlkit.domains.grading import as_text
from rlkit.errors import UserError, did_you_mean
from rlkit.seeds import generator
from rlkit.types import Reward, Task


class Problem(NamedTuple):
    question: str
    answer: str
    solution: str


def draw(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(rng.integers(low, high + 1))


def nonzero(rng: np.random.Generator, most: int) -> int:
    """A whole number of absolute value 1 … most."""
    return draw(rng, 1, most) * (1 if rng.random() < 0.5 else -1)


def latex(value: Fraction) -> str:
    """A whole number or a reduced fraction in LaTeX."""
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    return f"{sign}{top}" if bottom == 1 else rf"{sign}\frac{{{top}}}{{{bottom}}}"


def polynomial(coefficients: list[int], x: str = "x") -> str:
    """Text of a polynomial, coefficients from the highest power down: [1, -3, 2] is x^2 - 3x + 2."""
    terms = ""
    for power, c in zip(range(len(coefficients) - 1, -1, -1), coefficients, strict=True):
        size = "" if abs(c) == 1 and power else str(abs(c))
        letter = "" if power == 0 else x if power == 1 else f"{x}^{power}"
        terms += f" {'-' if c < 0 else '+'} {size}{letter}" if c else ""
    return re.sub(r"^ - ", "-", terms.removeprefix(" + ")) or "0"


def linear_equation(rng: np.random.Generator, level: int) -> Problem:
    most = 5 * level
    a, c = nonzero(rng, most), draw(rng, 0, most) if level > 2 else 0
    b, d = nonzero(rng, 4 * most), draw(rng, 0, 4 * most)
    while a == c:
        a = nonzero(rng, most)
    x = Fraction(d - b, a - c)
    question = f"Solve for $x$: ${polynomial([a, b])} = {polynomial([c, d])}$."
    solution = f"Collecting terms, ${polynomial([a - c, 0])} = {d - b}$, so $x = {latex(x)}$."
    return Problem(question, latex(x), solution)


def linear_system(rng: np.random.Generator, level: int) -> Problem:
    most = 2 + 2 * level
    x, y = nonzero(rng, 3 * level), nonzero(rng, 3 * level)
    a, b, c, d = (nonzero(rng, most) for _ in range(4))
    while a * d == b * c:
        d = nonzero(rng, most)
    equations = " and ".join(
        f"${polynomial([p, 0])} {'+' if q > 0 else '-'} {polynomial([abs(q), 0], 'y')} = {p * x + q * y}$"
        for p, q in ((a, b), (c, d))
    )
    question, determinant = f"If {equations}, what is $x + y$?", a * d - b * c
    solution = f"Eliminating $y$ gives ${polynomial([determinant, 0])} = {determinant * x}$, so $x = {x}$. "
    return Problem(question, str(x + y), solution + f"Then $y = {y}$ and $x + y = {x + y}$.")


def quadratic(rng: np.random.Generator, level: int) -> Problem:
    r, s = nonzero(rng, 3 + 3 * level), nonzero(rng, 3 + 3 * level)
    a = draw(rng, 1, level)
    which = "only" if r == s else "larger"
    question = f"What is the {which} root of ${polynomial([a, -a * (r + s), a * r * s])} = 0$?"
    factors = "".join(f"({polynomial([1, -root])})" for root in (r, s))
    solution = f"It factors as ${'' if a == 1 else a}{factors} = 0$, with roots ${r}$ and ${s}$."
    return Problem(question, str(max(r, s)), solution)


def fractions(rng: np.random.Generator, level: int) -> Problem:
    most = 4 * level + 4
    terms = [Fraction(nonzero(rng, most), draw(rng, 2, most)) for _ in range(2 + level // 3)]
    total = sum(terms, Fraction(0))
    text = latex(terms[0]) + "".join(f" {'-' if t < 0 else '+'} {latex(abs(t))}" for t in terms[1:])
    common = math.lcm(*(t.denominator for t in terms))
    over = " + ".join(f"({t.numerator * common // t.denominator})" for t in terms)
    solution = rf"Over the common denominator ${common}$: $\frac{{{over}}}{{{common}}} = {latex(total)}$."
    return Problem(f"Compute ${text}$.", latex(total), solution)


def greatest_divisor(rng: np.random.Generator, level: int) -> Problem:
    shared = draw(rng, 2, 6 * level)
    a, b = shared * draw(rng, 2, 8 * level), shared * draw(rng, 2, 8 * level)
    steps, p, q = [], max(a, b), min(a, b)
    while q:
        steps.append(f"${p} = {p // q} \\cdot {q} + {p % q}$")
        p, q = q, p % q
    solution = "By Euclid's algorithm: " + ", ".join(steps) + f". The last non-zero remainder is ${p}$."
    return Problem(f"What is the greatest common divisor of {a} and {b}?", str(p), solution)


def modular_power(rng: np.random.Generator, level: int) -> Problem:
    base, power = draw(rng, 2, 4 + 3 * level), draw(rng, 2, 4 * level + 2)
    modulus = draw(rng, 3, 6 * level + 5)
    steps = ", ".join(f"${base}^{{{k}}} \\equiv {pow(base, k, modulus)}$" for k in range(1, power + 1))
    question = f"What is the remainder when ${base}^{{{power}}}$ is divided by {modulus}?"
    return Problem(question, str(pow(base, power, modulus)), f"Modulo {modulus}: {steps}.")


def arithmetic_series(rng: np.random.Generator, level: int) -> Problem:
    first, step, n = nonzero(rng, 5 * level), nonzero(rng, 2 * level + 1), draw(rng, 4, 6 * level + 4)
    last = first + (n - 1) * step
    total = n * (first + last) // 2
    shown = ", ".join(str(first + k * step) for k in range(3))
    question = f"What is the sum of the first {n} terms of the arithmetic sequence {shown}, ...?"
    quotient = rf"\frac{{{n}({first} + ({last}))}}{{2}}"
    return Problem(question, str(total), f"The {n}th term is ${last}$, so the sum is ${quotient} = {total}$.")


def derivative(rng: np.random.Generator, level: int) -> Problem:
    degree = 2 + level // 2
    coefficients = [nonzero(rng, 2 + level) for _ in range(degree + 1)]
    at = nonzero(rng, 1 + level)
    slopes = [c * (degree - k) for k, c in enumerate(coefficients[:-1])]
    value = sum(c * at ** (degree - 1 - k) for k, c in enumerate(slopes))
    question = f"Let $f(x) = {polynomial(coefficients)}$. What is $f'({at})$?"
    return Problem(question, str(value), f"$f'(x) = {polynomial(slopes)}$, so $f'({at}) = {value}$.")


def committees(rng: np.random.Generator, level: int) -> Problem:
    women, men = draw(rng, 3, 3 + 2 * level), draw(rng, 3, 3 + 2 * level)
    w, m = draw(rng, 1, 2 + level // 2), draw(rng, 1, 2 + level // 2)
    ways = math.comb(women, w) * math.comb(men, m)
    question = (
        f"A club has {women} women and {men} men. In how many ways can a committee of {w} "
        f"{'woman' if w == 1 else 'women'} and {m} {'man' if m == 1 else 'men'} be chosen?"
    )
    parts = rf"\binom{{{women}}}{{{w}}} \cdot \binom{{{men}}}{{{m}}}"
    solution = f"${parts} = {math.comb(women, w)} \\cdot {math.comb(men, m)} = {ways}$."
    return Problem(question, str(ways), solution)


def discount(rng: np.random.Generator, level: int) -> Problem:
    percent = 5 * draw(rng, 1, 12)
    items, price = draw(rng, 2, 3 + 2 * level), 20 * draw(rng, 1, 10 * level)
    total = Fraction(items * price * (100 - percent), 100)
    question = (
        f"A shop sells notebooks at {price} cents each and takes {percent}% off the bill. "
        f"How many cents do {items} notebooks cost?"
    )
    solution = f"Without the discount: {items} * {price} = {items * price}. "
    return Problem(question, latex(total), solution + f"{percent}% off leaves {latex(total)}.")


_FRACTION = re.compile(r"([+-]?)(?:(\d{1,4000})|\\[dt]?frac\{([+-]?\d{1,99})\}\{(\d{1,99})\})")
NAMES = ("Anna", "Ben", "Chloe", "David", "Emma", "Farid", "Grace", "Hugo")
THINGS = ("apples", "stamps", "marbles", "books", "shells", "stickers", "coins", "cards")


def collections(rng: np.random.Generator, level: int) -> Problem:
    """Word problems of one to three steps on whole numbers: what somebody has in the end."""
    name, thing = NAMES[draw(rng, 0, len(NAMES) - 1)], THINGS[draw(rng, 0, len(THINGS) - 1)]
    count = draw(rng, 2, 10 * level)
    text, working = [f"{name} has {count} {thing}."], []
    for _ in range(draw(rng, 1, min(3, level))):
        other, amount = NAMES[draw(rng, 0, len(NAMES) - 1)], draw(rng, 1, 10 * level)
        kind = draw(rng, 0, 2)
        if kind == 0:
            after, sign, event = count + amount, "+", f"{name} finds {amount} more."
        elif kind == 1 and amount < count:
            after, sign, event = count - amount, "-", f"{name} gives {amount} of them to a friend of {other}."
        else:
            amount = draw(rng, 2, 3)
            event = f"Then {name} trades each of them for {amount} smaller ones."
            after, sign = count * amount, "*"
        working.append(f"{count} {sign} {amount} = {after}.")
        text.append(event)
        count = after
    question = f"{' '.join(text)} How many {thing} does {name} have now?"
    return Problem(question, str(count), " ".join(working))


FAMILIES: dict[str, Callable[[np.random.Generator, int], Problem]] = {
    make.__name__: make
    for make in (linear_equation, linear_system, quadratic, fractions, greatest_divisor, modular_power,
                 arithmetic_series, derivative, committees, discount, collections)
}  # fmt: skip


@sources.register("arithmetic")
class Arithmetic(Source):
    """Sums and differences of whole numbers, answered with the bare number.

    Example: `48+7=` → `55`. Short enough for a model of 30,000 parameters."""

    makes: ClassVar[tuple[str, ...]] = ("math__arithmetic",)
    kind: Literal["arithmetic"] = "arithmetic"
    digits: Annotated[int, Field(ge=1, le=12)] = 2
    """Most digits of an operand; each operand's length is drawn evenly up to it."""
    second_digits: Annotated[int, Field(ge=0, le=12)] = 0
    """Most digits of the second operand; 0 is as many as of the first."""
    operations: tuple[Literal["+", "-", "*"], ...] = ("+", "-")
    """Operations drawn from."""
    template: Annotated[str, Field(pattern=r"\{problem\}")] = "{problem}="
    """What is asked; `{problem}` is the sum, such as 48+7. Pretrained models want a sentence."""

    def task(self, index: int) -> Task:
        rng = generator("arithmetic", self.digits, self.second_digits, *self.operations, index)
        most = (self.digits, self.second_digits or self.digits)
        a, b = (int(rng.integers(10 ** int(rng.integers(1, digits + 1)))) for digits in most)
        operation = self.operations[int(rng.integers(len(self.operations)))]
        answer = {"+": a + b, "-": a - b, "*": a * b}[operation]
        prompt = self.template.replace("{problem}", f"{a}{operation}{b}")
        info = {"index": index, "difficulty": len(str(a)) + len(str(b))}
        return Task.ask("math__arithmetic", prompt, str(answer), ability="math", extra_info=info)


@sources.register("math_problems")
class MathProblems(Source):
    """School algebra, number theory, calculus and counting in words, answered in a box, as in Guru.

    Every task carries a worked solution (`extra_info["solution"]`) for supervised training."""

    makes: ClassVar[tuple[str, ...]] = ("math__problems",)
    kind: Literal["math_problems"] = "math_problems"
    level: Annotated[int, Field(ge=1, le=5)] = 3
    """Hardest level; each task's level is drawn evenly up to it."""
    families: tuple[str, ...] = ()
    """Families drawn from; empty is all."""
    instruction: str = " Please output the final answer within \\boxed{}."
    """What follows the question. Small pretrained models rarely know the box."""

    @field_validator("families")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in FAMILIES]:
            near = did_you_mean(unknown[0], FAMILIES)
            raise UserError(f"unknown family {unknown[0]!r}.{near} Known: {', '.join(FAMILIES)}")
        return names

    def task(self, index: int) -> Task:
        rng = generator("math_problems", self.level, *self.families, index)
        names = self.families or tuple(FAMILIES)
        name, level = names[int(rng.integers(len(names)))], int(rng.integers(1, self.level + 1))
        question, answer, solution = FAMILIES[name](rng, level)
        solution += f" The answer is $\\boxed{{{answer}}}$."
        info = {"index": index, "difficulty": level, "family": name, "original_question": question,
                "solution": solution}  # fmt: skip
        prompt = question + self.instruction
        return Task.ask("math__problems", prompt, answer, ability="math", extra_info=info)


@scorer("math__*", "math_dapo*", "math", "aime*", "numina_*", "openai/gsm8k", "lighteval/MATH", "hiyouga/geometry3k",
        "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500")  # fmt: skip
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the last boxed or `Answer:` value outside the reasoning equals the truth. A short
    response with neither is compared as a whole; boxes side by side can also be a list, one a member."""
    truth, answer = as_text(ground_truth, "a mathematics problem"), given(response)
    if "boxed" in truth or "####" in truth:  # a worked solution
        truth = as_text(final_answer(truth), "a mathematics problem")
    if not answer:
        return Reward.of(False, reason="no answer")
    if same_answer(answer, truth):
        return Reward.of(True)
    boxes = side_by_side(response)
    several = 1 < len(boxes) < 50 and answer.endswith(boxes[-1])
    return Reward.of(several and same_answer("; ".join(boxes), truth))


def same_answer(answer: str, truth: str) -> bool:
    """Whether two final answers mean the same; whole numbers and fractions of them are compared at once."""
    if (ours := _fraction(answer)) is not None and (theirs := _fraction(truth)) is not None:
        return ours[0] * theirs[1] == theirs[0] * ours[1]
    from rlkit.domains.math.compare import equivalent  # mpmath is imported where it is needed

    return answer == truth or equivalent(answer, truth)


def _fraction(text: str) -> tuple[int, int] | None:
    """Top and bottom of `-3` or `-\\frac{3}{4}`; None for any other text."""
    found = _FRACTION.fullmatch(text)
    bottom = int(found[4] or 1) if found else 0
    return (int(found[1] + "1") * int(found[2] or found[3]), bottom) if found and bottom else None
