"""The audit: what the graders on this machine get right, on cases decided by hand (cases.jsonl).

A case is a row of `rlkit score` with `correct`, its `domain` and its `kind`: answer, cheat (it tries to buy a verdict)
or hang (it never ends). With a data file, each ground truth must score 1 as an answer to itself, and the answer of
another row must score 0.
"""

import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.rewards import scorer_of
from rlkit.rewards.pool import Router
from rlkit.types import Reward, Task

_TIMEOUT = 5.0  # seconds an answer of the audit may take


@dataclass
class Audit:
    """What an audit found: each case with its verdict and the seconds that it took."""

    scorer: str
    sandbox: str
    cases: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The cases with a wrong verdict or none."""
        return [case for case in self.cases if case["verdict"] is not case["correct"]]

    @property
    def rate(self) -> float:
        return len(self.failures) / len(self.cases) if self.cases else 0.0

    def table(self) -> str:
        """Each attack that was tried and its result, then a line of verdicts a domain."""
        lines = [f"{'attack':<16}{'kind':<7}{'result':<10}{'seconds':>8}  response"]
        for case in self.cases:
            if case["kind"] in ("cheat", "hang"):
                text = " ".join(str(case["response"]).split())[:60]
                what = f"{case['domain']:<16}{case['kind']:<7}{_RESULTS[case['verdict']]:<10}"
                lines.append(f"{what}{case['seconds']:>8.2f}  {text}")
        lines += ["", f"{'domain':<16}{'cases':>7}{'false +':>9}{'false -':>9}{'errors':>8}{'seconds':>9}"]
        for domain in dict.fromkeys(case["domain"] for case in self.cases):
            own = [case for case in self.cases if case["domain"] == domain]
            wrong = [sum(c["verdict"] is v and c["correct"] is not v for c in own) for v in (True, False)]
            errors, seconds = sum(c["verdict"] is None for c in own), sum(c["seconds"] for c in own)
            lines.append(f"{domain:<16}{len(own):>7}{wrong[0]:>9}{wrong[1]:>9}{errors:>8}{seconds:>9.2f}")
        wrong = f"{100 * self.rate:.2f} % of the verdicts are wrong"
        return "\n".join([*lines, f"scorer {self.scorer}, sandbox {self.sandbox}: {wrong}."])


_RESULTS = {True: "ACCEPTED", False: "refused", None: "error"}


def audit(
    config: RewardConfig | None = None, data: str | Path | None = None, out: str | Path | None = None
) -> Audit:
    """Grade the shipped cases, and the checks of a data file if one is given; store the result as JSON in `out`.

    Raises:
        UserError: the data file cannot be read, or the reward function cannot be loaded.
    """
    config = config or RewardConfig(timeout=_TIMEOUT)
    result = Audit("/".join(scorer_of(config).values()), _sandbox(config))
    wanted = [*cases(), *(_own_cases(data) if data is not None else [])]
    with Router(config) as router:
        call = router.submit(
            [(c["data_source"], c["response"], c["ground_truth"], c["extra_info"]) for c in wanted]
        )
        for case, reward, seconds in zip(wanted, call.wait(), call.seconds, strict=True):
            result.cases.append({**case, **_verdict(reward), "seconds": round(seconds, 3)})
    if out is not None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        write_text(out, json.dumps({**asdict(result), "rate": result.rate, "time": when}, indent=1))
    return result


def cases() -> list[dict[str, Any]]:
    """The shipped cases, as mappings of domain, kind, data_source, response, ground_truth, extra_info and correct."""
    text = files("rlkit.rewards").joinpath("cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def _verdict(reward: Reward) -> dict[str, Any]:
    return {"verdict": reward.correct, "parts": dict(reward.parts), "error": reward.error}


def _sandbox(config: RewardConfig) -> str:
    from rlkit.rewards.sandbox.levels import choose

    try:
        return choose(config.sandbox).name
    except UserError:
        return "none"


def _own_cases(path: str | Path) -> list[dict[str, Any]]:
    """For each row: its reference answer, which is right, and the next other one of its source, which is wrong."""
    from rlkit.data.reference import reference_response
    from rlkit.data.rows import tasks

    def case(task: Task, answer: str, whose: str) -> dict[str, Any]:
        return {
            "domain": f"{task.data_source} ({whose})", "kind": "answer", "data_source": task.data_source,
            "response": answer, "ground_truth": task.ground_truth, "extra_info": dict(task.extra_info),
            "correct": whose == "own",
        }  # fmt: skip

    by_source: dict[str, list[tuple[Task, str]]] = defaultdict(list)
    for task in tasks(path):
        if (answer := reference_response(task)) is not None:
            by_source[task.data_source].append((task, answer))
    found = []
    for pairs in by_source.values():
        for index, (task, answer) in enumerate(pairs):
            found.append(case(task, answer, "own"))
            later = pairs[index + 1 :] + pairs[:index]
            other = next((text for t, text in later if t.ground_truth != task.ground_truth), None)
            if other is not None:
                found.append(case(task, other, "other"))
    return found
