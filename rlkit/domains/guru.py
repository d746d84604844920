"""The other domains as Reasoning360 scores them, for `scorer: guru` (mathematics: math/guru.py).

Each function computes what the original computes, defects included, except that no text of the model is
executed outside the sandbox. What the original drops to 0 without a word is a 0 here as well.
"""

import ast
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from rlkit.domains import guru_scorer
from rlkit.domains.math.guru import last_box, verl_file
from rlkit.rewards import context
from rlkit.rewards.sandbox import programs
from rlkit.rewards.truth import parse
from rlkit.seeds import derive
from rlkit.types import Reward

_ANSWER = re.compile(r"<answer>(.*?)</answer>")
_FENCE = re.compile(r"```(?:\w+)?\n(.*?)\n```", re.DOTALL)


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.findall(text)
    return found[-1].strip() if found else None


@guru_scorer("codegen__*")
def score_code(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """coder1: all fences joined; tests appended to the program, which pass when the exit status is 0."""
    text = response.partition("</think>")[2].strip() or response
    program = "\n".join(_FENCE.findall(text)).strip()
    truth = parse(ground_truth, dict, "a program")
    if not program:
        return Reward.of(False)
    if "functional" in truth:
        prefix = str(extra_info.get("prefix") or "")
        script = f"{prefix}\n{program}\n{truth['functional']}"
        return Reward.of(programs.run_script(script, "", _seconds()).ok)
    pairs = zip(truth["inputs"], truth["outputs"], strict=True)
    return Reward.of(all(_prints(program, given, expected) for given, expected in pairs))


def _seconds() -> float:
    return max(0.1, context.remaining() - 0.3)


def _prints(program: str, given: str, expected: str) -> bool:
    outcome = programs.run_script(program, given, _seconds())
    if not outcome.ok:
        return False
    ours, theirs = outcome.stdout.decode(errors="replace").strip(), expected.strip().replace("\r\n", "\n")
    lines = list(zip(ours.split("\n"), theirs.split("\n"), strict=False))
    if ours.count("\n") != theirs.count("\n"):
        return False
    return all(a == b or _same_tokens(a.split(), b.split()) for a, b in lines)


def _same_tokens(a: list[str], b: list[str]) -> bool:
    return len(a) == len(b) and all(map(_same_token, a, b))


def _same_token(a: str, b: str) -> bool:
    if a == b or (a.lower() == b.lower() and a.lower() in ("yes", "no")):
        return True
    try:
        return abs(float(a) - float(b)) <= 1e-6
    except ValueError:
        return False


@guru_scorer("simulation__arcagi*", "simulation__barc*")
def score_grid(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """arcagi: an unreadable answer is the grid [[0]]; floats and booleans are cut to whole numbers."""
    truth = parse(ground_truth, list, "a grid")
    try:
        grid = [[int(cell) for cell in row] for row in _grid(response)]
    except (TypeError, ValueError, OverflowError):
        grid = [[0]]
    return Reward.of(grid == truth)


def _grid(response: str) -> list[Any]:
    answer = _last(re.compile(_ANSWER.pattern, re.DOTALL), response)
    try:
        text = (answer or "").replace("\n", "").replace("...", "-1")
        start = text.index("[[")
        value = ast.literal_eval(text[start : text.index("]]", start) + 2])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return [[0]]
    return value if all(isinstance(row, list) for row in value) else [[0]]


@guru_scorer("logic__zebra_puzzle*")
def score_zebra(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """zebra_puzzle: the share of the truth's cells, from an answer on one line; the header is not read."""
    truth, answer = parse(ground_truth, dict, "a zebra puzzle"), _last(_ANSWER, response)
    try:
        table = _literal(answer or "")
        cells = [
            table["rows"][i][j] == truth["rows"][i][j]
            for i in range(len(truth["rows"]))
            for j in range(len(truth["header"]))
        ]
        value = sum(cells) / len(cells) if isinstance(table, dict) else 0.0
    except (ValueError, TypeError, KeyError, IndexError):
        value = 0.0
    return Reward.of(value == 1.0, value)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return json.loads(text)


@guru_scorer("logic__ordering_puzzle*")
def score_ordering(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """puzzles_dataset: names of the answer in lower case, split at hyphens, against the truth as it is."""
    truth, answer = parse(ground_truth, list, "an ordering puzzle"), _last(_ANSWER, response) or ""
    match = re.search(r"\[[\s'\"]*([^\],]+)[\s'\"]*(?:,[\s'\"]*([^\],]+)[\s'\"]*)*\]", answer)
    names = re.findall(r"['\"]?([\w\s]+)['\"]?", match.group()) if match else []
    return Reward.of(bool(match) and [n.lower().strip() for n in names if n.strip()] == truth)


@guru_scorer("logic__graph*")
def score_graph(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """graph_dataset: one word of letters only, on one line."""
    answer = _last(_ANSWER, response) or ""
    word = re.search(r"^[A-Za-z]+$", answer)
    return Reward.of(bool(word) and answer.lower() == str(ground_truth).lower())


@guru_scorer("simulation__codeio*")
def score_codeio(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """codeio: the first fence, else the last {…}; Python's equality, by which 1 is true."""
    found = re.findall(r"```(?:json)?\s*([\s\S]*?)```", response)
    text = (found[0] if found else response).strip()
    try:
        answer = json.loads(text)
        answer = answer.get("output", answer.get("input", answer))  # a list raises: a 0
    except json.JSONDecodeError:
        answer = _last_braces(text)
    except AttributeError:
        return Reward.of(False)
    truth = str(ground_truth).strip()
    pair = json.loads(truth if truth.startswith("{") else "{" + truth + "}")
    return Reward.of(_loose(answer) == _loose(pair.get("input", pair.get("output", pair))))


def _last_braces(text: str) -> Any:
    depth, start, found = 0, 0, None
    for position, char in enumerate(text):
        if char == "{":
            start = position if depth == 0 else start
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            found = text[start : position + 1] if depth == 0 else found
    try:
        value = json.loads((found or "").replace("\n", ""))
        return value.get("output", value.get("input", value))
    except (ValueError, AttributeError):
        return None


def _loose(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        if (text[:1], text[-1:]) in (("{", "}"), ("[", "]")):
            try:
                return _loose(json.loads(text))
            except ValueError:
                pass
        return text.lower() == "true" if text.lower() in ("true", "false") else value
    if isinstance(value, list):
        return [_loose(item) for item in value]
    return {k: _loose(v) for k, v in value.items()} if isinstance(value, dict) else value


@guru_scorer("simulation__cruxeval*")
def score_cruxeval(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """cruxeval: the fence behind the function; any statement that does not fail within 3 s passes."""
    code = parse(ground_truth, dict, "cruxeval")["functional"]
    claim = "\n".join(_FENCE.findall(response.split("</think>")[-1])).strip()
    return Reward.of(bool(claim) and programs.run_script(f"{code}\n{claim}", "", min(3.0, _seconds())).ok)


@guru_scorer("table*")
def score_table(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """tablereason: numbers within 0.1 %, else Hendrycks's string comparison; lists are sorted as text."""
    text, truth = response.lower().split("</think>")[-1], str(ground_truth).lower()
    same = verl_file("math_reward").is_equiv
    answer = last_box(text)
    answer = text if answer is None else answer
    if "|" not in truth:
        x, y = _number(answer), _number(truth)
        near = x is not None and y is not None and math.isclose(x, y, rel_tol=1e-3)
        return Reward.of(near or bool(same(answer, truth)))
    ours, theirs = (sorted(part.strip() for part in t.split("|")) for t in (answer, truth))
    return Reward.of(len(ours) == len(theirs) and all(map(same, theirs, ours)))


def _number(text: str) -> float | None:
    """The original evaluates the text; here only a number or one division of numbers has a value."""
    text = (
        text.replace(",", "")
        .replace("%", "/100")
        .replace("\\$", "")
        .replace("$", "")
        .replace(":", "/")
        .replace(" ", "")
    )
    try:
        top, _, bottom = text.partition("/")
        return float(top) / float(bottom or 1)
    except (ValueError, ZeroDivisionError):
        return None


@guru_scorer("stem__supergpqa*", "stem__gpqa*")
def score_choice(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """supergpqa: the first letter of A … J that occurs in the box; without a box a random one (here drawn
    from the response, so that a row has one score)."""
    answer = last_box(response.split("</think>")[-1])
    found = [letter for letter in "ABCDEFGHIJ" if answer and letter in answer]
    letter = found[0] if found else "ABCDEFGHIJ"[derive("supergpqa", response) % 10]
    return Reward.of(letter == str(ground_truth).strip())


@guru_scorer("stem__gpqa*no_box*")
def score_unboxed(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """gpqa: the letter behind `Answer:`."""
    match = re.search(r"(?i)Answer[ \t]*:[ \t]*\$?([A-J])\$?", response)
    return Reward.of(bool(match) and match.group(1).upper() == str(ground_truth).strip())  # type: ignore[union-attr]


@guru_scorer("stem_web*")
def score_judged(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """stem_llm_judge: the judge's verdict on the box; no judge, no box or a failing judge is a 0."""
    answer = last_box(response.split("</think>")[-1])
    if not answer or context.settings.judge_url is None:
        return Reward.of(False)
    from rlkit.rewards.grading import Ungradable
    from rlkit.rewards.judge import ask

    try:
        return Reward.of(ask(str(extra_info.get("question") or ""), str(ground_truth), answer))
    except Ungradable:
        return Reward.of(False)
