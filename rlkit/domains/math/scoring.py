"""Scoring mathematics: find the final answer, compare it with the truth.

Sources: the box convention is MATH's (Hendrycks et al. 2021), `#### ` is GSM8K's (Cobbe et al. 2021).
"""

from collections.abc import Mapping
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import final_answer, given, side_by_side
from rlkit.domains.math.read import rational, same_integer
from rlkit.errors import UserError
from rlkit.types import Reward

_VERL = ("openai/gsm8k", "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500",
         "hiyouga/geometry3k")  # fmt: skip


@scorer("math__*", "math_dapo*", "math", "aime*", "numina_*", *_VERL)
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the last boxed or `Answer:` value outside the reasoning equals the truth.

    A short response with neither is compared as a whole, so that a bare number is an answer. Boxes side by side can
    also be a list, one a member.
    """
    truth = _truth(ground_truth)
    answer = given(response)
    if not answer:
        return Reward.of(False, reason="no answer")
    boxes = side_by_side(response)  # one a member of a list
    several = 1 < len(boxes) < 50 and answer.endswith(boxes[-1])
    return Reward.of(_same(answer, truth) or (several and _same("; ".join(boxes), truth)))


def _truth(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)
    if not isinstance(value, str):
        raise UserError(f"The ground truth of a mathematics problem must be text: {value!r}.")
    if "boxed" in value or "####" in value:  # a worked solution: its answer is the truth
        value = final_answer(value) or ""
    if not value.strip():
        raise UserError("The ground truth is empty.")
    return value.strip()


def _same(answer: str, truth: str) -> bool:
    same = same_integer(answer, truth)
    if same is not None:
        return same
    a, b = rational(answer), rational(truth)
    if a is not None and b is not None and (a == b or "." not in answer + truth):
        return a == b
    from rlkit.domains.math.compare import equivalent

    return equivalent(answer, truth)
