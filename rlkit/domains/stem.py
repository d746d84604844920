"""Science: generated one-formula problems with units, and the scorers of letters, quantities, formulas and words."""

import json
import os
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources, vocabulary
from rlkit.domains.answers import FONT, TOLERANCE, choice_letter, given
from rlkit.domains.grading import Grading, as_text
from rlkit.domains.math.forms import from_unicode
from rlkit.domains.math.units import registry
from rlkit.domains.table import clean, figure
from rlkit.errors import Ungradable, UserError
from rlkit.seeds import generator
from rlkit.types import Reward, Task


class Formula(NamedTuple):
    """A question with a blank for each variable. Of several units the first is the formula's own."""

    subject: str
    text: str
    variables: list[list[Any]]  # of each its letter, its lowest and highest whole number and its units
    code: str  # an expression of the letters, which are pint quantities, and of unit(text), which makes one
    units: list[str]  # the answer's
    equation: str


FORMULAS = tuple(Formula(*row) for row in vocabulary("formulas"))


@sources.register("formulas")
class Formulas(Source):
    """One-formula problems of five subjects; half ask for a number with a unit, half for one of four letters."""

    makes: ClassVar[tuple[str, ...]] = ("stem__units", "stem__choice")
    kind: Literal["formulas"] = "formulas"
    level: Annotated[int, Field(ge=1, le=3)] = 3
    """1: the formula's own units. 2: given quantities in other units. 3: the answer in another one too."""

    def task(self, index: int) -> Task:
        rng = generator("formulas", self.level, "both", index)
        choice = bool(rng.integers(2))
        while True:  # until the value is one that is comfortably written out
            formula = FORMULAS[int(rng.integers(len(FORMULAS)))]
            level = int(rng.integers(1, self.level + 1))
            known, answer, unit = _instance(formula, level, rng)
            if 0.01 <= answer < 1e5:
                break
        question, value = formula.text.format(*known), f"{_written(answer)} {unit}"
        if choice:
            source, (text, truth) = "stem__choice", _choices(question, answer, unit, rng)
        else:
            source, truth = "stem__units", value
            form = "Please output the final answer, with its unit, within \\boxed{}."
            text = f"{question} Give the answer in {unit}, to four significant digits. {form}"
        info = {"index": index, "difficulty": level, "subject": formula.subject, "question": question}
        told = f"By ${formula.equation}$ with {', '.join(known)}: {value}. The answer is \\boxed{{{truth}}}."
        return Task.ask(source, text, truth, ability="stem", extra_info={**info, "solution": told})


def _instance(formula: Formula, level: int, rng: np.random.Generator) -> tuple[list[str], float, str]:
    """Given quantities as text, the answer's value and its unit; which units depends on the level."""
    known: dict[str, Any] = {}
    for letter, low, high, *units in formula.variables:
        unit = units[int(rng.integers(len(units)))] if level > 1 else units[0]
        known[letter] = int(rng.integers(low, high + 1)), unit
    unit = formula.units[int(rng.integers(len(formula.units)))] if level > 2 else formula.units[0]
    pint, _ = registry()
    quantities = {letter: pint.Quantity(*quantity) for letter, quantity in known.items()}
    answer = eval(formula.code, {"unit": pint, **quantities}).to(unit)  # of vocabulary.json
    return [f"{value} {of}" for value, of in known.values()], float(answer.magnitude), unit


def _written(value: float) -> str:
    """Four significant digits, without an exponent."""
    return np.format_float_positional(value, precision=4, fractional=False, trim="-")


def _choices(question: str, value: float, unit: str, rng: np.random.Generator) -> tuple[str, str]:
    """The question with four options in random order, and the right one's letter."""
    factors = [0.1, 10, 2, 0.5, 3.6, 1 / 3.6, 1.5]
    options = [value * factors[int(k)] for k in rng.permutation(len(factors))[:3]]
    at = int(rng.integers(4))
    options.insert(at, value)
    lines = "\n".join(f"{'ABCD'[k]}. {_written(option)} {unit}" for k, option in enumerate(options))
    form = "put the letter of the right option within \\boxed{}, for example \\boxed{A}."
    return f"{question}\n{lines}\nPlease reason step by step and {form}", "ABCD"[at]


_LONGEST = 2000  # characters of an answer that is read


@scorer("stem__supergpqa*", "stem__gpqa*", "stem__choice*", "stem__mmlu*")
def score_choice(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the boxed or `Answer:` letter is the truth; never a guess: several letters are none."""
    truth = choice_letter(ground_truth) if isinstance(ground_truth, str) else None
    if truth is None:
        raise UserError(f"The ground truth of a multiple choice must be a letter, not {ground_truth!r}.")
    answer = re.sub(r"(?i)^(?:I|we)\s+(?:choose|pick|select)\s+", "", given(response))
    if found := choice_letter(answer, described=True):
        return Reward.of(found.upper() == truth.upper())
    return Reward.of(False, reason="no letter")


@scorer("stem_web*", "stem__*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """1 when the final answer is the truth: the same number in the same or a convertible unit (within 0.1 % if it has
    decimals), the same formula, or the same words (singular and plural are one). Where `reward.judge_url` is set and
    the truth is text, the judge decides what the rules do not accept."""
    truth, answer = as_text(ground_truth, "a science question"), given(response)
    if not answer or len(answer) > _LONGEST:
        return Reward.of(False, reason="no answer")
    from rlkit.domains.math.compare import equivalent

    if equivalent(answer, truth, TOLERANCE) or same_text(answer, truth):
        return Reward.of(True)
    if grading.settings.judge_url is None or figure(clean(truth)) is not None:
        return Reward.of(False)
    question = str(extra_info.get("question") or "")
    return Reward.of(means_the_same(grading, question, truth, answer), judged=True)


_FONTS = re.compile(rf"(?:{FONT}|\\ce(?![A-Za-z]))\s*")
_ENDINGS = (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("es", "is"), ("ae", "a"), ("i", "us"))
"""Of plurals and their singulars."""
_IN_A = ("bacterium", "spectrum", "mitochondrion", "stratum", "quantum", "criterion", "phenomenon", "datum")
"""Words with a plural in a; silica is no silicon."""


def same_text(answer: str, truth: str) -> bool:
    """Whether two short texts have the same words, or are the same formula of chemistry."""
    ours, theirs = formula(answer), formula(truth)
    if ours == theirs:
        return True
    a, b, signs = words(answer), words(truth), _SIGN.findall(ours) == _SIGN.findall(theirs)
    spoken = any(word.isalpha() and len(word) > 1 for word in a + b)  # `5 - 3` has no words
    alike = len(a) == len(b) and all(_forms(x) & _forms(y) for x, y in zip(a, b, strict=True))
    return spoken and signs and alike


_SIGN = re.compile(r"(?<![A-Za-z])-|-(?![A-Za-z])|[+=<>/*!%]")  # a charge, an inequality; no hyphen in a word


def words(text: str) -> list[str]:
    """Words in lower case, without typography, articles and punctuation; case stays in 5 mW and CO."""
    text = re.sub(r"[{}$\\~]", " ", _FONTS.sub("", from_unicode(text)))
    figures = any(map(str.isdigit, text))
    found = re.findall(r"\d+(?:[.,:]\d+)+|[^\W_]+(?:['’][^\W_]+)?", text)
    cased = [len(w) <= 3 if figures else len(w) == 2 and w.isupper() and w != "NO" for w in found]
    found = [word if keep else word.casefold() for word, keep in zip(found, cased, strict=True)]
    return [word for word in found[:-1] if word not in ("the", "a", "an", "it")] + found[-1:]  # vitamin A


def _forms(word: str) -> set[str]:
    """A word and the singulars that it may be the plural of, of three letters or more."""
    endings = _ENDINGS[1:] if word.endswith(("ss", "us", "is")) else _ENDINGS
    singulars = {word.removesuffix(plural) + one for plural, one in endings if word.endswith(plural)}
    singulars |= {one for one in _IN_A if one[:-2] + "a" == word}
    return {word} | {one for one in singulars if len(one) > 2}


def formula(text: str) -> str:
    """A formula of chemistry without typography, in its own letter case: `\\mathrm{Na^+}` is `Na+`, `H_2O` `H2O`."""
    text = re.sub(r"\\(?:to|\w*[rR]ightarrow)(?![A-Za-z])", "->", _FONTS.sub("", from_unicode(text)))
    text = re.sub(r"(?<=[A-Za-z)\]])_", "", re.sub(r"[\s{}$\\]", "", text).rstrip("."))  # H_2O, but not 3_2
    # Na^+, 1s^2, sp^3, ^14C, but not 10^5
    return re.sub(r"\^(?=\d?[+-](?!\w))|(?<=\d[spdf])\^|(?<=sp)\^|^\^(?=\d+[A-Z])", "", text)


VERDICT = re.compile(r"\W*final decision\W+(yes|no)\W*", re.IGNORECASE)
MARKERS = re.compile(r"final\s+decision|#{2,}|<\|.*?\|>|</?(?:system|user|assistant)>", re.IGNORECASE)

_INSTRUCTIONS = resources.files("rlkit.domains").joinpath("judge.txt").read_text(encoding="utf-8").strip()
_verdicts: dict[tuple[str, str, str], bool] = {}  # of this process


def means_the_same(grading: Grading, question: str, truth: str, answer: str) -> bool:
    """Whether a model behind an OpenAI-compatible endpoint finds that the answer means the truth. It is asked once.

    The answer is data, not instructions: it is quoted as a JSON string, one that imitates the judge is wrong without
    being asked about, and only the last line of the reply is the verdict. Ungradable: the endpoint cannot be reached,
    or it gives no verdict."""
    if MARKERS.search(answer):  # no honest answer imitates the judge
        return False
    if (key := (question, truth, answer)) not in _verdicts:
        quoted = f"Student's answer (a JSON string):\n{json.dumps(answer)}"
        text = _reply(grading, f"Question:\n{question}\n\nReference answer:\n{truth}\n\n{quoted}")
        verdict = VERDICT.fullmatch(text.strip().rpartition("\n")[2].strip())
        if verdict is None:
            raise Ungradable(f"The judge gave no verdict: {text[-200:]!r}")
        _verdicts[key] = verdict.group(1).lower() == "yes"
    return _verdicts[key]


def _reply(grading: Grading, prompt: str) -> str:
    """The judge's answer at temperature 0; it is asked again after a moment when the server is busy or away."""
    import httpx

    messages = [{"role": "system", "content": _INSTRUCTIONS}, {"role": "user", "content": prompt}]
    body = {"model": grading.settings.judge_model, "temperature": 0, "max_tokens": 1024, "messages": messages}
    url = str(grading.settings.judge_url).rstrip("/")
    headers = {"Authorization": f"Bearer {os.environ.get('JUDGE_API_KEY', '-')}"}
    ask = partial(httpx.post, f"{url}/chat/completions", json=body, headers=headers)
    problem = "the deadline passed"
    for pause in (0.2, 0.4, 0.8):
        if (left := grading.remaining() - 0.3) <= 0:
            break
        try:
            # In a thread: an endpoint that sends a byte at a time is in no socket's timeout.
            reply = ThreadPoolExecutor(1).submit(ask, timeout=left).result(left).raise_for_status()
            return str(reply.json()["choices"][0]["message"]["content"])
        except Exception as error:  # of any kind: the endpoint may send anything
            problem = repr(error)
        time.sleep(min(pause, max(0.0, grading.remaining())))
    raise Ungradable(f"The judge at {url} cannot be asked: {problem}.")
