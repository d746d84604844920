"""Scoring science questions: letters, numbers with units, formulas and short text; a judge for the rest."""

from collections.abc import Mapping
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import TOLERANCE, choice_letter, figure, given, same_figure, tagged
from rlkit.domains.stem.text import same_text, words
from rlkit.domains.table import clean
from rlkit.errors import UserError
from rlkit.rewards import judge
from rlkit.rewards.grading import Grading
from rlkit.types import Reward

_LONGEST = 20_000  # characters of an answer that is read


@scorer("stem__supergpqa*", "stem__gpqa*", "stem__choice*", "stem__mmlu*")
def score_choice(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the boxed or `Answer:` letter is the truth; never a guess: several letters are none."""
    truth = choice_letter(ground_truth) if isinstance(ground_truth, str) else None
    if truth is None:
        raise UserError(f"The ground truth of a multiple choice must be a letter, not {ground_truth!r}.")
    found = choice_letter(given(response))
    if found is None:
        return Reward.of(False, reason="no letter")
    return Reward.of(found.upper() == truth.upper())


@scorer("stem_web*", "stem__*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """1 when the final answer is the truth: the same number in the same or a convertible unit (within
    0.1 % if it has decimals), the same formula, or the same words (singular and plural are one).

    Where `reward.judge_url` is set and the truth is text, the judge decides what the rules do not accept.
    """
    if isinstance(ground_truth, int | float) and not isinstance(ground_truth, bool):
        ground_truth = repr(ground_truth)
    if not isinstance(ground_truth, str) or not ground_truth.strip():
        raise UserError(f"The ground truth of a science question must be text: {str(ground_truth)[:80]!r}.")
    answer = given(response)
    if not answer or len(answer) > _LONGEST:
        return Reward.of(False, reason="no answer")
    if same_answer(answer, ground_truth):
        return Reward.of(True)
    if grading.settings.judge_url is None or not _needs_judge(ground_truth):
        return Reward.of(False)
    return Reward.of(_judged(ground_truth, answer, extra_info, grading), judged=True)


def _judged(truth: str, answer: str, extra_info: Mapping[str, Any], grading: Grading) -> bool:
    """The judge's verdict. What the rest of the batch will ask it is asked at the same time."""
    for source, text, other, info in grading.neighbours():
        if (
            source.startswith("stem_")
            and isinstance(other, str)
            and _needs_judge(other)
            and (late := given(text))
        ) and not same_answer(late, other):
            judge.prefetch(grading, str((info or {}).get("question") or ""), other, late)
    return judge.ask(grading, str(extra_info.get("question") or ""), truth, answer)


@scorer("searchR1_*")
def score_search(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the last `<answer>` has the words of one of the targets (exact match of question answering)."""
    truth = ground_truth.get("target") if isinstance(ground_truth, Mapping) else ground_truth
    targets = [truth] if isinstance(truth, str) else truth
    if not isinstance(targets, list) or not targets or not all(isinstance(t, str) for t in targets):
        raise UserError(f"The ground truth of a search question needs targets: {str(ground_truth)[:80]!r}.")
    answer = words(tagged(response) or "")
    return Reward.of(bool(answer) and any(answer == words(target) for target in targets))


def same_answer(answer: str, truth: str) -> bool:
    """The rules: figures, mathematics, units, words."""
    from rlkit.domains.math.compare import approximately, equivalent

    x, y = figure(clean(answer), abbreviations=False), figure(clean(truth), abbreviations=False)
    if x is not None and y is not None:
        return same_figure(x, y)
    return equivalent(answer, truth) or approximately(answer, truth, TOLERANCE) or same_text(answer, truth)


def _needs_judge(truth: str) -> bool:
    """Whether a truth is more than a number: rules decide those."""
    return figure(clean(truth)) is None
