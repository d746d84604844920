"""Grading speed beside math-verify and verl's prime_code, in one run on this machine.

    python tests/benchmarks/rewards.py [--math FILE] [--code FILE] [--workers N]

FILE is JSON lines: response and ground_truth; for code, ground_truth is the JSON text of inputs and
outputs. Without files, answers of the audit's cases and generated ones are used. The peers run as
they are used: math-verify called in sequence with its default timeouts, prime_code in sequence.
Prints a table of ratios (peer's time over ours) and, last, one JSON line.
"""

import argparse
import contextlib
import io
import json
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlkit.config import RewardConfig
from rlkit.rewards import Router
from rlkit.rewards.files import cases

Pair = tuple[str, Any]  # response, ground truth


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--math", type=Path)
    parser.add_argument("--code", type=Path)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    with Router(RewardConfig(num_workers=options.workers, timeout=10)) as router:
        found = {
            "math cases": compare(router, "math__x", read(options.math, "math"), math_verify()),
            "integers and fractions": compare(router, "math__x", numbers(2000), math_verify()),
            "programs": compare(router, "codegen__x", read(options.code, "code"), prime_code()),
        }
        found["a trivial test"] = {"ours_s": trivial_test(router), "peer": "-", "peer_s": None, "ratio": None}
    print(f"{'':<24}{'ours':>12}{'peer':>12}{'ratio':>8}")
    for name, line in found.items():
        peer = f"{1e3 * line['peer_s']:>9.2f} ms" if line["peer_s"] else f"{'-':>12}"
        ratio = f"{line['ratio']:>8.1f}" if line["ratio"] else f"{'-':>8}"
        print(f"{name:<24}{1e3 * line['ours_s']:>9.2f} ms{peer}{ratio}")
    print(json.dumps({"benchmark": "rewards", **found}))


def read(path: Path | None, domain: str) -> list[Pair]:
    """The pairs of a file, or those of the battery that end by themselves."""
    if path is None:
        kinds = ("answer",) if domain == "code" else ("answer", "hang")
        return [(c["response"], c["ground_truth"]) for c in cases() if c["domain"] == domain and c["kind"] in kinds]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["response"], row["ground_truth"]) for row in rows]


def numbers(count: int) -> list[Pair]:
    """Plain whole numbers and fractions, half of them right."""
    rng = random.Random(0)
    pairs: list[Pair] = []
    for _ in range(count // 2):
        a, b = rng.randint(-999, 999), rng.randint(2, 99)
        pairs.append((rf"So it is $\boxed{{{a + rng.randint(0, 1)}}}$.", str(a)))
        pairs.append((rf"So it is $\boxed{{\frac{{{2 * a}}}{{{2 * b}}}}}$.", rf"\frac{{{a}}}{{{b}}}"))
    return pairs


def compare(router: Router, source: str, pairs: list[Pair], peer: Callable[[str, Any], object]) -> dict[str, Any]:
    """Seconds an answer, ours and the peer's; ours is measured warm, as in the second step of a run."""
    rows = [(source, response, truth, None) for response, truth in pairs]
    router.grade_rows(rows)
    ours = timed(lambda: router.grade_rows(rows)) / len(rows)
    peer(*pairs[0])
    theirs = timed(lambda: [peer(response, truth) for response, truth in pairs]) / len(pairs)
    return {"ours_s": ours, "peer": peer.__name__, "peer_s": theirs, "ratio": theirs / ours, "rows": len(rows)}


def timed(task: Callable[[], object]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def trivial_test(router: Router) -> float:
    """Seconds a test of a program that prints its input."""
    truth = {"inputs": [str(i) for i in range(100)], "outputs": [str(i) for i in range(100)]}
    rows = [("codegen__x", "```python\nprint(input())\n```", truth, None)] * 4
    router.grade_rows(rows)
    return timed(lambda: router.grade_rows(rows)) / 400


def math_verify() -> Callable[[str, Any], object]:
    from math_verify import parse, verify

    logging.disable(logging.WARNING)  # it writes a line for each of its timeouts

    def math_verify(response: str, truth: Any) -> bool:
        try:
            return bool(verify(parse(f"${truth}$"), parse(response)))
        except Exception:
            return False

    return math_verify


def prime_code() -> Callable[[str, Any], object]:
    from verl.utils.reward_score.prime_code import compute_score

    def prime_code(response: str, truth: Any) -> object:
        text = truth if isinstance(truth, str) else json.dumps(truth)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return compute_score(response, text, continuous=True)

    return prime_code


if __name__ == "__main__":
    main()
