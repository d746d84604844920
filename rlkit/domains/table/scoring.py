"""Scoring questions about tables: figures with a stated tolerance, words, and lists in any order."""

import re
from collections.abc import Mapping
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import figure, given, same_figure
from rlkit.errors import UserError
from rlkit.types import Reward

_LONGEST = 20_000  # characters of an answer that is read


@scorer("table__*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the boxed answers, separated by `|`, are the truth's in any order, each as often.

    Figures agree within 0.1 % if either has decimals (rlkit.domains.answers); words agree without
    letter case. Nothing is evaluated: `2019-2020` is a range of years, not -1.
    """
    truth = ground_truth
    if isinstance(truth, int | float) and not isinstance(truth, bool):
        truth = repr(truth)
    if isinstance(truth, list) and all(isinstance(item, str | int | float) for item in truth):
        truth = "|".join(map(str, truth))
    if not isinstance(truth, str) or not truth.strip():
        raise UserError(f"The ground truth of a table question must be text: {str(ground_truth)[:80]!r}.")
    answer = given(response)
    if not answer or len(answer) > _LONGEST:
        return Reward.of(False, reason="no answer")
    return Reward.of(same_list(answer, truth))


def same_list(answer: str, truth: str) -> bool:
    """Whether two lists have the same members, in any order."""
    ours, theirs = _parts(answer), _parts(truth)
    if len(ours) == 1 < len(theirs):
        ours = [clean(part) for part in re.split(r",\s+|\s+and\s+|;\s*", answer) if part.strip()]
    left = list(theirs)
    for part in ours:
        found = next((i for i, other in enumerate(left) if same(part, other)), None)
        if found is None:
            return False
        del left[found]
    return not left


def _parts(text: str) -> list[str]:
    return [clean(part) for part in text.split("|") if part.strip()]


def clean(text: str) -> str:
    """Without LaTeX typography, quotes and a final full stop, in lower case."""
    text = re.sub(r"\\(?:text|mathrm|textbf|mathbf|mbox|operatorname)\s*\{([^{}]*)\}", r"\1", text)
    text = text.replace("{,}", ",").replace("\\,", "").replace("−", "-").replace("–", "-").replace("\\!", "")
    text = re.sub(r"\\([$%&_#{} ])", r"\1", text)
    return " ".join(text.split()).strip("'\"“”").rstrip(".").casefold()


def same(a: str, b: str) -> bool:
    """Whether two cleaned members are the same figure or the same words."""
    if a == b:
        return True
    x, y = figure(a), figure(b)
    return x is not None and y is not None and same_figure(x, y)
