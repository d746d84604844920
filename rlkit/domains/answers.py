"""The answer in a response: in a box, a tag, a fence or an answer line, outside the reasoning; a figure of a table.

Everywhere the last answer is the one that was given: a right answer that was changed is wrong.
"""

import ast
import json
import math
import re
import textwrap
import unicodedata
from dataclasses import dataclass
from typing import Any

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=(.))", re.DOTALL)
_BARE = re.compile(r"-?\d\w*(?:[.,/]\w+)*|[A-Za-z](?![A-Za-z])")  # \boxed 7, but not "with \boxed as asked"
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BETWEEN = (
    re.compile(  # boxes of one answer: \boxed{2} and \boxed{3}, $x=\boxed{2}$, $y=\boxed{3}$, (a) … (b) …
        r"[\s$)\]\\]*(?:,?\s*(?:and|or)\b|[,;|]|\n\s*(?:[-*•]|\d\.)(?=\s)|\s\(?[a-z0-9]\)(?=\s))?[\s$(\[\\]*"
        r"(?:(?P<name>\\?[A-Za-z]\w{0,9})\s*=\s*[\s$]*)?"
    )
)
_NAME_BEFORE = re.compile(r"(?<![A-Za-z0-9}^_])(\\?[A-Za-z]\w{0,9})\s*=\s*\$?\s*\Z")
_ANSWER_LINE = re.compile(
    r"answer[*_\s]{0,9}[:：][*_]*(?P<answer>[^\n]*)"
    r"|^[ \t>]{0,9}(?:\#{1,6}|\*\*|__)[ \t#*_]{0,9}(?:the\s|final\s|correct\s|my\s){0,3}answer[ \t]*[*_]*[ \t]*$"
    r"|^[ \t]{0,9}\#\#\#\#[ \t]*(?P<gsm8k>(?![^\n]*answer\b)[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_LEAD = re.compile(
    r"(?:\A|[\n.!?}$])[\s>*#_~`-]*(?:(?:the|my|so|thus|hence|therefore|and),?\s+){0,3}(?:final\s+|correct\s+)?\Z",
    re.IGNORECASE,
)
_WINDOW = 80  # characters before "answer:" in which its line or sentence must begin
_SENTENCE = re.compile(
    r"\banswer(?:\s+(?:to|for|of)\s[^.\n:]{1,60})?\s+(?:is|equals|=)\s*[:：]?\s*(?=\S)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"(?:the|there|it|we|i)\b.*?\b(?:is|are|equals?|get|gives)\b\s*:?\s*(.+)", re.IGNORECASE | re.DOTALL
)
_AMOUNT = re.compile(
    r"(?<![\w.^])(?P<amount>(?:\\?[$€£]\s?)?-?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?![\d^]|[A-Za-z]\w)(?P<percent>\s?\\?%)?)"
    r"(?P<unit>\s+(?:(?:square|cubic|per|each|an?)\s+[a-z]+|[a-z]+(?:\s+per\s+[a-z]+)?))?",
    re.IGNORECASE,
)
_PROSE = re.compile(
    r"(?:[A-Z][a-z]*['’,]?\s+(?:[a-z]+['’,]?\s+|[A-Z][a-z]+['’,]?\s+)*)?(?:\\?[$€£])?[\d,./%\\-]+(?:\s+[A-Za-z'’,-]+)*\s*[.!]?"
)
_UNSURE = re.compile(
    r"\b(?:not|or|either|neither|between|maybe|perhaps|least|most|than|cannot)\b|n't", re.IGNORECASE
)
_MOST_BOXES = 50  # of one answer
_WHOLE_RESPONSE = 200  # characters; a longer response is no bare answer
_OPENING_FENCE = re.compile(r"(?<![`~])(?P<marks>`{3,}|~{3,})")
_FONTS = re.compile(
    r"\\(?:(?:text|math)(?:bf|it|rm|sf|tt|normal)?|mbox|bm|boldsymbol|operatorname|underline|emph|rm|bf)(?![A-Za-z])"
)
_CHOICE = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\b(?:\s+is\b)?\s*:?\s*)?"
    r"[\[(]?\s*(?P<letter>[A-Za-z])\s*(?:[\])]+[.:,]?|[.:]+(?=\s|$)|$)",
    re.IGNORECASE,
)
_DESCRIBED = re.compile(
    r"(?P<letter>[A-J])(?:\s+(?=\()|\s*,(?=\s)|\s+[-–—=](?=\s)|[,\s]*$)"
)  # C (Paris), C - Paris
_OTHER = re.compile(  # another option's letter in what follows the first: a hedge
    r"^(?:(?:or|and)\b|[,/&|;])?\s*[\[(]?[A-Za-z](?:[\]).:,;/&|]|\s*$)"  # nothing but a letter
    r"|(?<![\w(])[\[(]?[A-J][\])]"  # … (B) …
    r"|(?<!\w)[A-J][.:](?=\s+\S)"  # … B. text
    r"|(?:\b(?:or|and)|[,/&|;])\s*[\[(]?[A-J](?=[\]).:,;]|\s*$)"  # … or B
    r"|^[\[(]?\s*[A-J](?=\s*[?\])]|\s+(?:is|was|too|also)\b)"  # (B is possible)
    r"|\b(?:or|also|maybe|possibly|perhaps|alternatively|neither|not|but|vs)\b[^A-Z]{0,20}\b[A-J](?=\s*(?:[\]).:,;?]|$))",
)


def after_thinking(response: str) -> str:
    """The text outside `<think>` blocks: what follows the last `</think>`, up to a block never closed."""
    text = response.rpartition("</think>")[2]
    return text.partition("<think>")[0]


def last_box(text: str) -> tuple[int, str] | None:
    """Position and content of the last complete `\\boxed{…}` or `\\fbox{…}`, braces balanced.

    An empty box counts only where no other has content. Boxes that a comma, "and" or a name joins are one answer:
    `x=\\boxed{2}, y=\\boxed{3}` gives `x=2, y=3`.
    """
    boxes = _boxes(text)
    filled = [box for box in boxes if box[2].strip(" .\n")]
    if not filled:
        return (boxes[-1][0], boxes[-1][2]) if boxes else None
    return filled[-1][0], _joined(text, filled)


def side_by_side(response: str) -> list[str]:
    """The contents of the last boxes that nothing but blanks, a comma, "and", "or" or a name parts; none where an
    `Answer:` line follows them."""
    text = after_thinking(response)
    contents: list[str] = []
    begin = 0
    for start, end, content in reversed([box for box in _boxes(text) if box[2].strip(" .\n")]):
        if len(contents) > _MOST_BOXES:
            return []
        if contents and not _BETWEEN.fullmatch(_gap(text, end, begin)):
            break
        if not contents and _ANSWER_LINE.search(text, end):
            break
        contents.insert(0, content.strip())
        begin = start
    return contents


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of every box that is in no other; a box inside it is part of its content."""
    starts = [(m.start(), m.end(), m.group(1)) for m in _BOX.finditer(text)]
    closing = _closing_braces(text, starts[0][0]) if starts else {}
    boxes: list[tuple[int, int, str]] = []
    for start, after, first in starts:
        if boxes and start < boxes[-1][1]:
            continue
        if first == "{" and after in closing:
            content = re.sub(r"\\(?:boxed|fbox)\s*(?=\{)", "", text[after + 1 : closing[after]])
            boxes.append((start, closing[after] + 1, content))
        elif first != "{" and (word := _BARE.match(text[after : after + _WHOLE_RESPONSE])):
            boxes.append((start, after + word.end(), word.group()))
    return boxes


def _gap(text: str, begin: int, end: int) -> str:
    """What stands between two boxes, in plain text; one that is too long to join them is cut."""
    gap = re.sub(r"\\(?:text|mbox|mathrm)\s*\{([^{}]*)\}", r" \1 ", text[begin : min(end, begin + 40)])
    return re.sub(r"\\(?:q?quad|[,;: ])", " ", gap) if end - begin < 40 else "…"


def _joined(text: str, boxes: list[tuple[int, int, str]]) -> str:
    """The content of the last box, with those before it that belong to the same answer."""
    contents = [boxes[-1][2]]
    names: list[str] = []
    for (_, end, content), later in zip(boxes[-2::-1], boxes[:0:-1], strict=True):
        gap = _gap(text, end, later[0])
        match = _BETWEEN.fullmatch(gap) if len(contents) <= _MOST_BOXES else None
        if match is None or not (
            match["name"] or re.search(r"[,;|•]|\band\b|\bor\b|\n\s*(?:[-*]|\d\.)|\)\s", gap)
        ):
            break
        contents.insert(0, content)
        names.insert(0, match["name"] or "")
    if len({content.strip() for content in contents}) == 1 and len(contents) > 1 and not any(names):
        return contents[0]
    if len(contents) == 1:
        end = boxes[-1][1]
        percent = re.match(r"\s*\\?%", text[end : end + 9])
        return contents[0] + (r"\%" if percent and re.fullmatch(r"[\d.,\s]+", contents[0]) else "")
    first = _NAME_BEFORE.search(text[max(0, boxes[-len(contents)][0] - 20) : boxes[-len(contents)][0]])
    names.insert(0, first[1] if first else "")
    if not all(names):
        names = [""] * len(contents)
    return ", ".join(
        f"{name}={value}" if name else value for name, value in zip(names, contents, strict=True)
    )


def _closing_braces(text: str, begin: int) -> dict[int, int]:
    """Position of the closing brace for every opening one from `begin` on; escaped braces do not count."""
    pairs, stack = {}, []
    for match in _BRACE.finditer(text, begin):
        if match.group() == "{":
            stack.append(match.start())
        elif match.group() == "}" and stack:
            pairs[stack.pop()] = match.start()
    return pairs


def final_answer(response: str) -> str | None:
    """The last boxed or `Answer:` value; failing both, the last "answer is …"; None if nothing is given.

    An `Answer:` line that holds a box gives the box. A heading such as `**Final Answer**` has its value below.
    """
    text = after_thinking(response)
    found = [box] if (box := last_box(text)) else []
    for match in _ANSWER_LINE.finditer(text):
        before = text[max(0, match.start() - _WINDOW) : match.start()]
        if match.start() > _WINDOW:
            before = "-" + before  # the window's beginning is not the text's
        if match["answer"] is not None and not _LEAD.search(before):
            continue
        value = match["gsm8k"] if match["gsm8k"] is not None else match["answer"] or ""
        if match["gsm8k"] is None and not value.strip(" *_\t"):
            value = _below(text, match.end())
        if "boxed" in value or "fbox" in value or not value.strip(" *_#"):
            continue  # the box itself is in the list already
        found.append((match.start(), _sentence_value(value)))
    if found:
        return max(found)[1]
    sentences = list(_SENTENCE.finditer(text))
    if sentences:
        return _first_sentence(text[sentences[-1].end() :].partition("\n")[0])
    return tagged(response)


def _below(text: str, position: int) -> str:
    """The next line that is not blank, or the displayed formula that begins there."""
    rest = text[position : position + 2 * _WHOLE_RESPONSE].lstrip()
    for opening, closing in (("$$", "$$"), ("\\[", "\\]")):
        if rest.startswith(opening) and (end := rest.find(closing, 2)) > 0:
            return rest[2:end].strip()
    return rest.partition("\n")[0]


def given(response: str) -> str:
    """The final answer; a short response of one line that marks none is an answer as a whole. Empty when
    there is none."""
    answer = final_answer(response)
    if answer is None:
        answer = after_thinking(response).strip()
        if len(answer) > _WHOLE_RESPONSE or "\n" in answer:
            return ""
    answer = answer.strip().strip("*`").strip()
    if len(answer) <= _WHOLE_RESPONSE:
        answer = re.sub(r"^(?:\\[,;:! ]|~|\s|=(?!=))+|(?:\\[,;:! ]|\\$|~|\s)+$", "", answer)
    return answer


def _sentence_value(value: str) -> str:
    """The value in what follows `Answer:`: "The largest n is 34." gives 34, "She makes $18 every day." $18 every."""
    value = value.strip().strip("*_`").strip()
    if len(value) > 5 * _WHOLE_RESPONSE:
        return value
    amounts = list(_AMOUNT.finditer(value))
    if len(amounts) == 1 and _PROSE.fullmatch(value) and not _UNSURE.search(value):
        amount = amounts[0]
        return (amount["amount"] if amount["percent"] else amount[0]).strip()
    sentence = _CLAUSE.fullmatch(value)
    return _first_sentence(sentence[1]) if sentence else value


def _first_sentence(text: str) -> str:
    end = r"\.(?=\s|$)|(?:\s[-–—]\s(?=[A-Za-z]{2})|;\s)(?!(?:or|and|also|maybe|possibly|perhaps)\b)"
    return re.split(end, text.strip(), maxsplit=1)[0].strip().strip("*_`").strip()


def choice_letter(text: str, described: bool = False) -> str | None:
    """The letter of a multiple choice, in its own case: alone, marked, or before its option's text.

    `B`, `(B)`, `**B.** 12`, `\\textbf{(B)}\\ 12`, `Option B`; with `described`, where nothing but a choice is asked
    for, also `B (Paris)`, `B - Paris`, `B, Paris`. None for several letters and for other text.
    """
    if len(text) > 5 * _WHOLE_RESPONSE:
        return None
    text = unicodedata.normalize("NFKC", text)
    text = re.sub(r"[{}$*_`~]|\\[,;:! ]|\\(?=\s)|</?[bi]>", " ", _FONTS.sub(" ", text)).strip()
    match = _CHOICE.match(text) or (_DESCRIBED.match(text) if described else None)
    if match is None:
        return None
    rest = text[match.end() :].strip()
    for other in _OTHER.finditer(rest):
        if other[0].strip(" .,:;()[]&|/")[-1].upper() != match["letter"].upper():
            return None
    return match["letter"]


def tagged(response: str, tag: str = "answer") -> str | None:
    """Content of the last complete `<tag>…</tag>` outside the reasoning, in any letter case."""
    text = after_thinking(response)
    lower = text.lower()
    end = lower.rfind(f"</{tag}>")
    start = lower.rfind(f"<{tag}>", 0, max(end, 0))
    return text[start + len(tag) + 2 : end] if end >= 0 and start >= 0 else None


def fences(response: str) -> list[tuple[str, str]]:
    """(language, content) of every closed fence outside the reasoning; languages in lower case.

    A fence may open after text and close at the end of a line of code; an indented one is dedented.
    """
    found: list[tuple[str, str]] = []
    marks, language, body = "", "", list[str]()
    for line in after_thinking(response).replace("\r\n", "\n").split("\n"):
        if not marks:
            marks, language = _opening(line)
            body = []
        elif (end := line.rstrip()).endswith(marks):
            last = end.rstrip(marks[0])
            body += [last] if last.strip() else []
            found.append((language.strip("{}. ").lower(), textwrap.dedent("\n".join(body))))
            marks = ""
        else:
            body.append(line)
    return found


def _opening(line: str) -> tuple[str, str]:
    """Marks and language of the fence that a line opens; two empty texts where it opens none."""
    last = line.rfind("`")
    for match in _OPENING_FENCE.finditer(line):
        if match.end() > last:
            return match["marks"], line[match.end() :].strip(" \t")
    return "", ""


def literal(text: str, default: Any = None) -> Any:
    """The JSON or else Python value that a text is, or `default`. Nothing is executed."""
    text = text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return default


_FIGURE = re.compile(
    r"(?P<open>\()?\s*(?P<sign>[+-]?)\s*(?P<money>\\?[$€£¥]|usd\s*)?\s*(?P<sign2>[+-]?)"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?P<power>e[+-]?\d{1,3})?"
    r"\s*(?P<scale>thousand|million|billion|trillion|k|m|mn|bn|tn)?\b\s*(?P<money2>dollars|usd|euros?)?"
    r"\s*(?P<percent>\\?%|percent|per cent|percentage points?)?\s*(?P<close>\))?",
    re.IGNORECASE,
)
_SCALES = {"thousand": 1e3, "k": 1e3, "million": 1e6, "m": 1e6, "mn": 1e6, "billion": 1e9, "bn": 1e9,
           "trillion": 1e12, "tn": 1e12}  # fmt: skip
_ROUGHLY = re.compile(
    r"(?:[≈~]|\\approx|\\sim|(?:approximately|approx\.?|about|around|roughly|ca\.)\s)\s*", re.IGNORECASE
)
TOLERANCE = 1e-3
"""Relative difference within which figures with decimals agree: 33.3 and 33.33."""


@dataclass(frozen=True)
class Figure:
    value: float
    whole: bool
    percent: bool
    scale: float


def figure(text: str, abbreviations: bool = True) -> Figure | None:
    """The figure that a text is, or None if it is something else (a range, a word, a formula, an infinity).

    Without `abbreviations`, 5 m and 5 mn are no figures: they may be metres and meganewtons.
    """
    text = text.strip()
    if len(text) >= 100:
        return None
    if (rough := _ROUGHLY.match(text)) is not None:
        text = text[rough.end() :]
    if re.fullmatch(r"\D{0,5}\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\d).*", text):
        text = re.sub(r"(?<=\d)[ \u00a0\u202f](?=\d{3}(?!\d))", "", text)
    match = _FIGURE.fullmatch(text)
    if match is None or bool(match["open"]) != bool(match["close"]) or (match["sign"] and match["sign2"]):
        return None
    if not abbreviations and len(match["scale"] or "million") <= 2:
        return None
    digits = match["digits"].replace(",", "")
    value = float(digits + (match["power"] or ""))
    if not math.isfinite(value):
        return None
    negative = (match["sign"] == "-") != (match["sign2"] == "-") or bool(match["open"])
    scale = _SCALES.get((match["scale"] or "").lower(), 1.0)
    whole = "." not in digits and not match["power"]
    return Figure(-value if negative else value, whole, bool(match["percent"]), scale)


def same_figure(a: Figure, b: Figure) -> bool:
    """Equal within TOLERANCE if either has decimals, exactly if both are whole (2018 is not 2019), and never half
    a unit from a whole one (2018.5 is neither).

    A word such as million may be missing on one side (the table's head has it), but where both are written they
    count. A percent sign that one side has is read by `in_percent`.
    """
    if a.percent == b.percent and a.scale != b.scale and 1.0 not in (a.scale, b.scale):
        return _near(a.value * a.scale, b.value * b.scale, False)
    if a.percent != b.percent:
        share, bare = (a, b) if a.percent else (b, a)
        if not in_percent(bare.value):
            return _near(share.value / 100, bare.value, False)
    apart = a.whole != b.whole and abs(a.value - b.value) >= 0.5
    if _near(a.value, b.value, a.whole and b.whole) and not apart:
        return True
    return a.scale != b.scale and _near(a.value * a.scale, b.value * b.scale, False)


def in_percent(bare: float) -> bool:
    """How a figure without a percent sign is read beside one that has it, in every domain: above 1 it is a number of
    percent (20 is 20%, never 2000%), up to 1 it is a share (0.125 is 12.5%, never 0.125%), as are fractions and
    formulas. So no percentage is right for two truths. A table's truth with the sign is met by percent alone."""
    return abs(bare) > 1


def _near(a: float, b: float, whole: bool) -> bool:
    return a == b if whole else abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) and (a < 0) == (b < 0)
