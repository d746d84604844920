"""The answer in a response: in a box, a tag, a fence or an answer line, outside the reasoning; a figure of a table.

Everywhere the last answer is the one that was given: a right answer that was changed is wrong."""

import ast
import json
import re
import textwrap
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

_LINE = 200  # characters; a longer response is no bare answer
_MOST_BOXES = 50  # of one answer
_FENCE = re.compile(r"(?<![`~])(?:`{3,}|~{3,})")
_BOX = re.compile(  # \boxed{…}, and \boxed 7, but not "with \boxed as asked"
    r"\\(?:boxed|fbox)\s*(?:(?P<open>\{)|(?P<bare>-?\d\w*(?:[.,/]\w+)*|[A-Za-z](?![A-Za-z])))?|\\\\|\\?[{}]"
)
_NAME = r"(?:(?P<name>\\?[A-Za-z]\w{0,9})\s*=[\s$]*)"
_HEDGE = "alternatively|possibly|maybe|perhaps"
# \boxed{2} and \boxed{3}, $x=\boxed{2}$, $y=\boxed{3}$, (a) … (b) …, \boxed{2} (or possibly \boxed{3})
_BETWEEN = re.compile(
    rf"[\s$()\[\]\\]*(?P<joint>,?[\s(]*(?:and|or|{_HEDGE})\b(?:,?\s*(?:{_HEDGE}|else|even)\b)?|[,;|/]"
    rf"|\n\s*(?:[-*•]|\d\.)(?=\s)|\s\(?[a-z0-9]\)(?=\s))?[\s$,()\[\]\\]*{_NAME}?"
)
_NAME_BEFORE = re.compile(rf"(?<![A-Za-z0-9}}^_]){_NAME}\Z")
_ANSWER_LINE = re.compile(
    r"answer[*_\s]{0,9}[:：][*_]*(?P<answer>[^\n]*)"
    r"|^[ \t>]{0,9}(?:\#{1,6}|\*\*|__)[ \t#*_]{0,9}(?:(?:the|final|correct|my)\s){0,3}answer[ \t]*[*_]*[ \t]*$"
    r"|^[ \t]{0,9}\#\#\#\#[ \t]*+(?P<gsm8k>(?![^\n]*answer\b)\S[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_LEAD = re.compile(  # what may stand before "answer:"
    r"(?im)(?:^|[.!?}$])[\s>*#_~`-]*(?:(?:the|my|so|thus|hence|therefore|and),?\s+){0,3}(?:(?:final|correct)\s+)?\Z"
)
_SAYS = re.compile(
    r"(?i)\b(?:answer|correct (?:option|choice))(?:\s+(?:to|for|of) [^.\n:]{1,60})?\s{1,9}"
    r"(?:is(?: equal to| therefore| thus)?|equals|=|(?:would|will|should|must) be(?=[\s:$\\(*-]*\d))[:：\s]*(?=\S)"
)
_CLAUSE = re.compile(  # The largest n is 34. Ann pays $18 per day.
    r"(?is)(?:the|there|it|we|i)\b.*?\b(?:(?:is|are)(?: equal to)?|equals?|get|gives)\b\s*:?\s*(?P<value>.+)"
    r"|(?:it|we|s?he|they|(?-i:(?!No(?:ne|body))[A-Z]\w+))"
    r" (?:takes?|makes?|pays?|earns?|costs?|needs?|has|have) (?P<amount>\\?\$?\d.*)"
)
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*")
_NO_BOX = re.compile(r"\$?\\(?:boxed|fbox)\s*+(?:\{[\s.]*+\})?[\s$.*]*+$")  # 12. \boxed
_SENTENCE_END = re.compile(rf"\.(?=\s|$)|(?:\s[-–—]\s(?=[A-Za-z]{{2}})|;\s)(?!(?:or|and|also|{_HEDGE})\b)")
# a command of LaTeX for a font
FONT = r"\\(?:(?:text|math)(?:bf|it|rm|sf|tt|normal)?|mbox|bm|boldsymbol|operatorname|underline|emph|rm|bf)(?![A-Za-z])"
_CHOICE = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\b(?:\s+is\b)?\s*:?\s*)?"
    r"[\[(]?\s*(?P<letter>[A-Za-z])\s*(?:[\])]+[.:,]?|[.:]+(?=\s|$)|$)",
    re.IGNORECASE,
)
_DESCRIBED = re.compile(  # C (Paris), C - Paris, C because …
    r"(?P<letter>[A-J])(?:\s+(?=\(|(?:because|since|as)\s|is\s+(?:the\s+)?(?:correct|right)\b)|\s*,(?=\s)"
    r"|\s+[-–—=](?=\s)|[,\s]*$)"
)
_DENIED = re.compile(  # (A) is incorrect, (A) cannot be, A, unless it is D; but "D. cannot be determined" is an option
    r"\W*(?:(?:is|was|are|can|could)\s+(?:also\s+)?(?:not|incorrect|wrong|false|ruled|excluded|eliminated|rejected"
    r"|impossible|be)\b|cannot\b(?!\s+be\s+determined)|(?:isn|can)['’]t\b|not\W*$|unless\b)"
)
_NO_HEDGE = re.compile(  # Both A and D, which is an option's text; (C), not (D)
    r"^(?:(?:[Bb]oth|[Nn]either)\s+[A-J]\s+(?:and|nor)\s+[A-J]\b|(?:and\s+)?not\s+(?:option\s+)?[\[(]?[A-J][\])]?\W*$)"
)
_OTHER = re.compile(  # another option's letter in what follows the first: a hedge, or a change of mind
    r"^(?:(?:or|and)\b|[,/&|;])?\s*[\[(]?[A-Za-z](?:[\]).:,;/&|]|\s*$)"  # nothing but a letter
    r"|(?<![A-Za-z_(])[\[(]?[A-J][\])]|(?<!\w)[A-J][.:](?=\s+\S)"  # … (B) …, … B. text
    r"|^[\[(]?\s*[A-J](?=\s*[?\])]|\s+(?:is|was|too|also)\b)"  # (B is possible)
    r"|\b(?:or|also|maybe|possibly|perhaps|alternatively|neither|not|but|vs)\b[^A-Z]{0,20}\b[A-J](?=\s*(?:[\]).:,;?]|$))"
    r"|(?:\b(?:or|and|(?i:is|it['’]s|be|actually|rather|leaving|leaves|so|hence|thus|choose|option|answer)(?=\s))"
    r"|[.:;!?,/&|])\s*[\[(]?[A-J](?=[\]).:,;]|\W*$)"  # … or B, False. D, actually B
)


def after_thinking(response: str) -> str:
    """The text outside `<think>` blocks: what follows the last `</think>`, up to a block never closed."""
    return response.rpartition("</think>")[2].partition("<think>")[0]


def last_box(text: str) -> tuple[int, str] | None:
    """Position and content of the last complete `\\boxed{…}` or `\\fbox{…}` (an empty one where none has content).
    Boxes that a comma, "and" or a name joins are one answer: `x=\\boxed{2}, y=\\boxed{3}` gives `x=2, y=3`."""
    if not (boxes := _last_boxes(text, joined=True)):
        return None
    start, end, content = boxes[-1]
    before = [_NAME_BEFORE.search(text, max(0, start - 20), start) for start, _, _ in boxes]
    names = [match["name"] if match else "" for match in before]
    if len({box[2].strip() for box in boxes}) == 1 and not any(names[1:]):
        percent = re.match(r"\s*\\?%", text[end : end + 9]) and re.fullmatch(r"[\d.,\s]+", content)
        return start, content + (r"\%" if percent else "")
    whole = [f"{name}={box[2]}" if all(names) else box[2] for name, box in zip(names, boxes, strict=True)]
    return start, ", ".join(whole)


def side_by_side(response: str) -> list[str]:
    """The contents of the last boxes that nothing but blanks, a comma, "and", "or" or a name parts; none where an
    `Answer:` line follows them."""
    text = after_thinking(response)
    boxes = _last_boxes(text, joined=False) if text.count("box") > 1 else []
    return [] if not boxes or _ANSWER_LINE.search(text, boxes[-1][1]) else [box[2].strip() for box in boxes]


def _last_boxes(text: str, joined: bool) -> list[tuple[int, int, str]]:
    """Start, end and content of the last box that has content (or else the last) and of those that stand right before
    it; `joined`: by a comma, "and", a list's mark or a name."""
    every = _boxes(text)
    if len(every) < 2:
        return every
    boxes = ([box for box in every if box[2].strip(" .\n")] or every[-1:])[-_MOST_BOXES:]
    for first in range(len(boxes) - 1, 0, -1):
        gap = text[boxes[first - 1][1] : boxes[first][0]]
        plain = re.sub(r"\\(?:text|mbox|mathrm)\s*\{([^{}]*)\}", r" \1 ", gap[:40])
        between = _BETWEEN.fullmatch(re.sub(r"\\(?:q?quad|[,;: ])", " ", plain))
        if len(gap) >= 40 or not between or (joined and not (between["joint"] or between["name"])):
            return boxes[first:]
    return boxes


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Every complete box that is in no other; a box inside it is part of its content."""
    found: list[tuple[int, int, int, int]] = []  # start and end of a box, and of its content
    opened: list[tuple[int, int]] = []  # where the box (or -1) and the content of each open brace start
    first = _BOXED.search(text)
    for token in _BOX.finditer(text, first.start()) if first else ():
        if token["bare"]:
            found.append((*token.span(), *token.span("bare")))
        elif token["open"] or token[0] == "{":
            opened.append((token.start() if token["open"] else -1, token.end()))
        elif token[0] == "}" and opened:
            start, inside = opened.pop()
            if start >= 0:
                while found and found[-1][0] > start:
                    found.pop()
                found.append((start, token.end(), inside, token.start()))
    return [(start, end, _BOXED.sub("", text[inside:close])) for start, end, inside, close in found]


def final_answer(response: str) -> str | None:
    """The last boxed or `Answer:` value, which a heading such as `**Final Answer**` has below; failing both, the last
    "answer is …" or tag; None if nothing is given. An `Answer:` line that holds a box gives the box."""
    text = after_thinking(response)
    position, answer = last_box(text) or (0, None)
    if answer is not None and not answer.strip(" .\n"):  # \boxed{} behind the answer
        position, answer = 0, None
    for match in reversed(list(_ANSWER_LINE.finditer(text, position))):
        if match["answer"] is not None and not _LEAD.search(text, max(0, match.start() - 80), match.start()):
            continue
        value = _NO_BOX.sub("", match["gsm8k"] or match["answer"] or "")
        if not value.strip(" *_\t"):  # the next line, in a displayed formula or not
            below = text[match.end() : match.end() + 2 * _LINE]
            value = re.sub(r"^\s*(?:\$\$|\\\[)?\s*", "", below).partition("\n")[0]
        if value.strip(" *_#") and not re.search("boxed|fbox", value):
            value = value.strip().strip("*_`").strip()
            clause = _CLAUSE.fullmatch(value) if len(value) <= 5 * _LINE else None
            answer = _first_sentence(clause["value"] or clause["amount"]) if clause else value
            break
    if answer is None and (sentences := list(_SAYS.finditer(text))):
        return _first_sentence(text[sentences[-1].end() :].partition("\n")[0])
    return tagged(response) if answer is None else answer


def _first_sentence(text: str) -> str:
    text = re.sub(r"\*\*([^*\s][^*]*)\*\*", r"\1", text.strip())
    return _SENTENCE_END.split(text, maxsplit=1)[0].strip().strip("*_`").strip()


def given(response: str) -> str:
    """The final answer; failing that a response of one short line; else an empty text."""
    answer = final_answer(response)
    if answer is None:
        whole = after_thinking(response).strip()
        answer = "" if len(whole) > _LINE or "\n" in whole else whole
    answer = answer.strip().strip("*`").strip()
    if len(answer) <= _LINE and not answer.lstrip("-").isalnum():
        answer = re.sub(r"^(?:\\[,;:! ]|~|\s|=(?!=))+|(?:\\[,;:! ]|\\$|~|\s)+$", "", answer)
    return answer


def choice_letter(text: str, described: bool = False) -> str | None:
    """The letter of a multiple choice, in its own case: `B`, `(B)`, `**B.** 12`, `\\textbf{(B)}\\ 12`, `Option B`; with
    `described`, where nothing but a choice is asked for, also `B (Paris)`, `B - Paris`, `B, Paris`. None for several
    letters and for other text."""
    if len(text) > 5 * _LINE:
        return None
    text = unicodedata.normalize("NFKC", text)
    text = re.sub(r"[{}$*_`~\"“”]|\\[,;:! ()\[\]]|\\q?quad\b|\\(?=\s)|</?[bi]>", " ", re.sub(FONT, " ", text))
    text = " ".join(text.split())
    match = _CHOICE.match(text) or (_DESCRIBED.match(text) if described else None)
    if match is None:
        return None
    rest = _NO_HEDGE.sub("", text[match.end() :].strip())
    labelled = match[0].rstrip().endswith((".", ":"))  # the option's text follows
    others = [other[0].strip(" .,:;()[]&|/")[-1] for other in _OTHER.finditer(rest)]
    if (_DENIED.match(rest) and not labelled) or {o.upper() for o in others} - {match["letter"].upper()}:
        return None
    return match["letter"]


def tagged(response: str) -> str | None:
    """Content of the last complete `<answer>…</answer>` outside the reasoning, in any letter case."""
    text = after_thinking(response)
    lower = text.replace("İ", "i").lower()  # İ alone has two characters in lower case
    end = lower.rfind("</answer>")
    start = lower.rfind("<answer>", 0, max(end, 0))
    return text[start + len("<answer>") : end] if start >= 0 else None


def fences(response: str) -> list[tuple[str, str]]:
    """(language in lower case, dedented content) of every closed fence outside the reasoning. A fence may
    open after text and close at the end of a line of code."""
    found: list[tuple[str, str]] = []
    marks, language, body = "", "", list[str]()
    for line in after_thinking(response).replace("\r\n", "\n").split("\n"):
        if not marks:
            ticks = len(line[: line.rfind("`") + 1].rstrip("`"))  # no backtick stands behind the marks
            if opening := _FENCE.search(line, ticks):
                marks, language, body = opening[0], line[opening.end() :], []
        elif (end := line.rstrip()).endswith(marks):
            last = end.rstrip(marks[0])
            body += [last] if last.strip() else []
            found.append((language.strip("{}. \t").lower(), textwrap.dedent("\n".join(body))))
            marks = ""
        else:
            body.append(line)
    return found


def marked(response: str) -> str:
    """What the last `<answer>` holds, or a box behind it, without a fence around it; without a tag the last
    box, the only fence or an answer line; else nothing."""
    text, inside = after_thinking(response), tagged(response)
    box = last_box(text)
    if box and (inside is None or box[0] > text.replace("İ", "i").lower().rfind("<answer>")):
        inside = box[1]
    blocks = fences(text if inside is None else inside)
    if len(blocks) == 1 and (inside is None or re.fullmatch(r"\s*(```|~~~)[\s\S]*\1\s*", inside)):
        return blocks[0][1]
    return (final_answer(text) or "") if inside is None else inside


def literal(text: str, default: Any = None) -> Any:
    """The JSON or else Python value that a text is, or `default`. Nothing is executed."""
    text = text.strip()
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_int=lambda digits: int(Decimal(digits)))  # of any length
    with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return ast.literal_eval(text)
    return default


def paired(ours: list[str], theirs: list[str], same: Callable[[str, str], bool]) -> bool:
    """Whether each of one list is the same as one of the other, each used once."""
    left = list(theirs)
    for one in ours:
        place = next((k for k, other in enumerate(left) if same(one, other)), None)
        if place is None:
            return False
        del left[place]
    return not left


TOLERANCE = 1e-3
"""Relative difference within which figures with decimals agree: 33.3 and 33.33."""


def in_percent(bare: float) -> bool:
    """How a figure without a percent sign is read beside one that has it, in every domain: above 1 it is a number of
    percent (20 is 20%, never 2000%), up to 1 it is a share (0.125 is 12.5%, never 0.125%), as are fractions and
    formulas. So no percentage is right for two truths. A table's truth with the sign is met by percent alone."""
    return abs(bare) > 1
