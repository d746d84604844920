"""Answers in files: `score_file` grades a file of them, `audit` measures the graders on cases decided by hand: rows of
`score_file` (cases.jsonl) with `correct`, a `domain` and a `kind`: answer, cheat (it tries to get a verdict without an
answer) or hang (it never ends). Cheats and hangs have a `note` that says what they try."""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.files import existing, require_space, write_text
from rlkit.rewards.grading import scorer_of
from rlkit.rewards.pool import Router, Row
from rlkit.sandbox.levels import choose

AUDIT_SECONDS = 5.0  # that an answer of the audit may take
_FIELDS = ("data_source", "response", "ground_truth")


def score_file(path: str | Path, out: str | Path | None = None, config: RewardConfig | None = None) -> dict[str, Any]:
    """Score a JSON-lines file (data_source, response, ground_truth, extra_info) into `out` (or NAME.scored.jsonl); its
    lines, in the order of the input, have value, correct, parts, error and the scorer.

    Returns the counts rows, correct and errors, and the path out. Raises UserError where the file is not there or has a
    line that is no such object, or `out` cannot be written."""
    path, config = existing(path), config or RewardConfig()
    out = Path(out) if out else path.with_name(path.stem + ".scored.jsonl")
    if out.is_dir() or out.resolve() == path.resolve():
        raise UserError(f"{out} is the input itself or a folder: name another file with --out.")
    lines = enumerate(path.read_bytes().splitlines(), 1)
    rows = [_row(line, f"{path}, line {number}") for number, line in lines if line.strip()]
    scorer = "/".join(scorer_of(config).values())
    require_space(out.parent, 0)
    with Router(config) as router:
        rewards = router.grade_rows(rows, progress=True)
    write_text(out, "".join(json.dumps(asdict(reward) | {"scorer": scorer}) + "\n" for reward in rewards))
    correct, errors = sum(r.correct is True for r in rewards), sum(r.error is not None for r in rewards)
    return {"rows": len(rows), "correct": correct, "errors": errors, "out": str(out)}


def _row(line: bytes, where: str) -> Row:
    try:
        row = json.loads(line)  # UnicodeDecodeError is a ValueError
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: no JSON ({error}).") from None
    missing = [name for name in _FIELDS if name not in row] if isinstance(row, dict) else ["an object"]
    if missing:
        raise UserError(f"{where}: {missing[0]} is missing; a line has {', '.join(_FIELDS)}.")
    return row["data_source"], row["response"], row["ground_truth"], row.get("extra_info")


@dataclass
class Audit:
    """The result of an audit: each case with its `verdict` (None for an error), `parts`, `error` and `seconds`."""

    scorer: str
    sandbox: str
    cases: list[dict[str, Any]]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The cases with a wrong verdict or none."""
        return [case for case in self.cases if case["verdict"] is not case["correct"]]

    def table(self) -> str:
        """Each attack with its result, and the wrong verdicts of each domain, in 80 columns."""
        lines = [f"{'attack':<47}{'domain':<15}{'result':<9}{'seconds':>9}"]
        for case in self.cases:
            if case["kind"] != "answer":
                result = {True: "ACCEPTED", False: "refused", None: "error"}[case["verdict"]]
                lines.append(f"{case['note']:<47}{case['domain']:<15}{result:<9}{case['seconds']:>9.2f}")
        lines += ["", f"{'domain':<15}{'cases':>7}{'false pos.':>12}{'false neg.':>12}{'errors':>8}"]
        for domain, count in Counter(case["domain"] for case in self.cases).items():
            wrong = Counter(case["verdict"] for case in self.failures if case["domain"] == domain)
            lines.append(f"{domain:<15}{count:>7}{wrong[True]:>12}{wrong[False]:>12}{wrong[None]:>8}")
        share = f"{len(self.failures)} of {len(self.cases)} verdicts are wrong"
        return "\n".join([*lines, "", f"Scorer {self.scorer}, sandbox {self.sandbox}: {share}."])


def audit(config: RewardConfig | None = None, out: str | Path | None = None) -> Audit:
    """Grade the shipped cases and store the result as JSON in `out`. Raises UserError where `out` cannot be written,
    programs cannot be run safely, or the reward function cannot be loaded."""
    config = config or RewardConfig(timeout=AUDIT_SECONDS)
    if out is not None:
        require_space(Path(out).parent, 0)
    result = Audit("/".join(scorer_of(config).values()), choose(config.sandbox), cases())
    rows = [(c["data_source"], c["response"], c["ground_truth"], c["extra_info"]) for c in result.cases]
    with Router(config) as router:
        for case, (reward, seconds) in zip(result.cases, router.submit(rows), strict=True):
            case |= {"verdict": reward.correct, "parts": dict(reward.parts), "error": reward.error}
            case["seconds"] = round(seconds, 3)
    if out is not None:
        write_text(out, json.dumps(asdict(result), indent=1))
    return result


def cases() -> list[dict[str, Any]]:
    """The shipped cases, as mappings of domain, kind, data_source, response, ground_truth, extra_info and correct."""
    text = resources.files("rlkit.rewards").joinpath("cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]
