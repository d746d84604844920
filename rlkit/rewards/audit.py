"""The audit: what the graders on this machine get right, measured through the router.

The battery (battery.yaml) is graded from three call contexts: the main thread, a worker thread and an
event loop. With a data file, each ground truth must score 1 as an answer to itself, and the answer of
another row must score 0.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.rewards import SCORER_VERSION
from rlkit.rewards.pool import Router
from rlkit.types import Reward, Task

Row = tuple[str, Any, Any, Any]  # data_source, response, ground_truth, extra_info
_TIMEOUT = 5.0  # seconds an answer of the battery may take


@dataclass(frozen=True)
class Case:
    """One answer and whether it is right."""

    domain: str
    kind: str
    row: Row
    right: bool


@dataclass
class Line:
    """The counts of one domain."""

    domain: str
    cases: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    errors: int = 0
    seconds: float = 0.0


@dataclass
class Audit:
    """What an audit found; `rate` is the share of cases with a wrong verdict or none."""

    scorer: str
    sandbox: str
    lines: list[Line] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        cases = sum(line.cases for line in self.lines)
        return len(self.failures) / cases if cases else 0.0

    def table(self) -> str:
        """A line a domain."""
        head = f"{'domain':<16}{'cases':>7}{'false +':>9}{'false -':>9}{'errors':>8}{'seconds':>9}"
        rows = [
            f"{x.domain:<16}{x.cases:>7}{x.false_positives:>9}{x.false_negatives:>9}"
            f"{x.errors:>8}{x.seconds:>9.2f}"
            for x in self.lines
        ]
        wrong = f"{100 * self.rate:.2f} % of the verdicts are wrong"
        last = f"scorer {self.scorer}, sandbox {self.sandbox}: {wrong}."
        return "\n".join([head, *rows, last])


def audit(
    config: RewardConfig | None = None, data: str | Path | None = None, out: str | Path | None = None
) -> Audit:
    """Run the battery, and the checks of a data file if one is given; store the result as JSON in `out`.

    Raises:
        UserError: the data file cannot be read, or the sandbox asked for does not work here.
    """
    from rlkit.rewards.sandbox.levels import choose

    config = config or RewardConfig(timeout=_TIMEOUT)
    result = Audit(f"{config.scorer}/{SCORER_VERSION}", _sandbox(lambda: choose(config.sandbox).name))
    cases = battery()
    with Router(config) as router:
        for context, grade in CONTEXTS.items():
            _judge(result, cases, context, grade, router)
        if data is not None:
            _judge(result, _own_cases(data), "data", CONTEXTS["main thread"], router)
    if out is not None:
        content = {
            **asdict(result),
            "rate": result.rate,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        write_text(out, json.dumps(content, indent=1))
    return result


def _sandbox(name: Callable[[], str]) -> str:
    try:
        return name()
    except UserError:
        return "none"


def battery() -> list[Case]:
    """The cases of battery.yaml."""
    import yaml

    content = yaml.safe_load(files("rlkit.rewards").joinpath("battery.yaml").read_text(encoding="utf-8"))
    return [
        Case(
            domain,
            case.get("kind", "answer"),
            (
                case.get("data_source", section["data_source"]),
                case["response"],
                case["truth"],
                case.get("info"),
            ),
            case["right"],
        )
        for domain, section in content.items()
        for case in section["cases"]
    ]


def _from_thread(router: Router, rows: Sequence[Row]) -> tuple[list[Reward], list[float]]:
    """Graded from a thread, as by a trainer that goes on meanwhile."""
    import threading

    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(_here(router, rows)))
    thread.start()
    thread.join()
    return found[0]


def _here(router: Router, rows: Sequence[Row]) -> tuple[list[Reward], list[float]]:
    call = router.submit(rows)
    return call.wait(), call.seconds


def _from_loop(router: Router, rows: Sequence[Row]) -> tuple[list[Reward], list[float]]:
    """Graded from an event loop that must stay responsive; one that was blocked is an error of the audit."""

    async def run() -> tuple[list[Reward], list[float]]:
        return await asyncio.to_thread(_here, router, rows)

    return asyncio.run(run())


CONTEXTS = {"main thread": _here, "worker thread": _from_thread, "event loop": _from_loop}


def _judge(result: Audit, cases: list[Case], context: str, grade: Any, router: Router) -> None:
    rewards, seconds = grade(router, [case.row for case in cases])
    lines = {line.domain: line for line in result.lines}
    for case, reward, spent in zip(cases, rewards, seconds, strict=True):
        line = lines.setdefault(case.domain, Line(case.domain))
        line.cases += 1
        line.seconds += spent
        line.errors += reward.error is not None
        line.false_positives += reward.correct is True and not case.right
        line.false_negatives += reward.correct is False and case.right
        if reward.correct is not case.right:
            result.failures.append(
                {
                    "domain": case.domain,
                    "context": context,
                    "data_source": case.row[0],
                    "response": str(case.row[1])[:500],
                    "ground_truth": str(case.row[2])[:500],
                    "right": case.right,
                    "correct": reward.correct,
                    "error": reward.error,
                }
            )
    result.lines = list(lines.values())


def _own_cases(path: str | Path) -> list[Case]:
    """For each row: its reference answer, which is right, and the next other one of its source, which is
    wrong."""
    from rlkit.data.reference import reference_response
    from rlkit.data.rows import tasks

    by_source: dict[str, list[tuple[Task, str]]] = defaultdict(list)
    for task in tasks(path):
        if (answer := reference_response(task)) is not None:
            by_source[task.data_source].append((task, answer))
    cases = []
    for source, pairs in by_source.items():
        for index, (task, answer) in enumerate(pairs):
            row = (source, answer, task.ground_truth, dict(task.extra_info))
            cases.append(Case(f"{source} (own)", "answer", row, True))
            later = pairs[index + 1 :] + pairs[:index]
            other = next((text for t, text in later if t.ground_truth != task.ground_truth), None)
            if other is not None:
                row = (source, other, task.ground_truth, dict(task.extra_info))
                cases.append(Case(f"{source} (other)", "answer", row, False))
    return cases
