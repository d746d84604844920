"""The answer in a response: in a box, a tag, a fence or an answer line, outside the reasoning; a figure of a table.

Everywhere the last answer is the one that was given: a right answer that was changed is wrong.
"""

import ast
import json
import re
import textwrap
import unicodedata
from typing import Any

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_BOX_OR_BRACE = re.compile(rf"(?P<box>{_BOX.pattern})|\\\\|\\?[{{}}]")
_BARE = re.compile(r"-?\d\w*(?:[.,/]\w+)*|[A-Za-z](?![A-Za-z])")  # \boxed 7, but not "with \boxed as asked"
_NAME = r"(?:(?P<name>\\?[A-Za-z]\w{0,9})\s*=[\s$]*)"
# \boxed{2} and \boxed{3}, $x=\boxed{2}$, $y=\boxed{3}$, (a) … (b) …, \boxed{2} (or possibly \boxed{3})
_BETWEEN = re.compile(
    r"[\s$()\[\]\\]*(?P<joint>,?[\s(]*(?:and|or|alternatively|possibly|maybe|perhaps)\b"
    r"(?:,?\s*(?:alternatively|possibly|maybe|perhaps|else|even)\b)?|[,;|/]"
    r"|\n\s*(?:[-*•]|\d\.)(?=\s)|\s\(?[a-z0-9]\)(?=\s))?"
    rf"[\s$,()\[\]\\]*{_NAME}?"
)
_NAME_BEFORE = re.compile(rf"(?<![A-Za-z0-9}}^_]){_NAME}\Z")
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
    r"\banswer(?:\s+(?:to|for|of)\s[^.\n:]{1,60})?\s{1,9}(?:is|equals|=)[:：\s]*(?=\S)", re.IGNORECASE
)
_CLAUSE = re.compile(
    r"(?:the|there|it|we|i)\b.*?\b(?:is|are|equals?|get|gives)\b\s*:?\s*(.+)", re.I | re.DOTALL
)
_MOST_BOXES = 50  # of one answer
_LINE = 200  # characters; a longer response is no bare answer
_OPENING_FENCE = re.compile(r"(?<![`~])(?P<marks>`{3,}|~{3,})")
_FONTS = re.compile(
    r"\\(?:(?:text|math)(?:bf|it|rm|sf|tt|normal)?|mbox|bm|boldsymbol|operatorname|underline|emph|rm|bf)(?![A-Za-z])"
)
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
    r"\W*(?:(?:is|was|are|can|could)\s+(?:also\s+)?(?:not|incorrect|wrong|false|ruled|excluded|eliminated|rejected|impossible"
    r"|be)\b"
    r"|cannot\b(?!\s+be\s+determined)|isn['’]t\b|can['’]t\b|not\W*$|unless\b)"
)
_ANOTHER = re.compile(  # (A) False. D, (A) actually C
    r"(?:[.:;!?]\s*|\b(?i:is|it['’]s|be|actually|rather|leaving|leaves|so|hence|thus|choose|option|answer)\s+)[\[(]?[A-J](?=\W*$)"
)
_NO_HEDGE = re.compile(  # Both A and D, which is an option's text; (C), not (D)
    r"^(?:(?:[Bb]oth|[Nn]either)\s+[A-J]\s+(?:and|nor)\s+[A-J]\b|(?:and\s+)?not\s+(?:option\s+)?[\[(]?[A-J][\])]?\W*$)"
)
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
    return response.rpartition("</think>")[2].partition("<think>")[0]


def last_box(text: str) -> tuple[int, str] | None:
    """Position and content of the last complete `\\boxed{…}` or `\\fbox{…}`, braces balanced.

    An empty box counts only where no other has content. Boxes that a comma, "and" or a name joins are one answer:
    `x=\\boxed{2}, y=\\boxed{3}` gives `x=2, y=3`.
    """
    boxes = _last_boxes(text, joined=True)
    if not boxes:
        return None
    start, end, content = boxes[-1]
    names = [
        m["name"] if (m := _NAME_BEFORE.search(text, max(0, box[0] - 20), box[0])) else "" for box in boxes
    ]
    if len({content.strip() for _, _, content in boxes}) == 1 and not any(names[1:]):
        percent = re.match(r"\s*\\?%", text[end : end + 9]) and re.fullmatch(r"[\d.,\s]+", content)
        return start, content + (r"\%" if percent else "")
    named = zip(names if all(names) else [""] * len(names), boxes, strict=True)
    return start, ", ".join(f"{name}={content}" if name else content for name, (_, _, content) in named)


def side_by_side(response: str) -> list[str]:
    """The contents of the last boxes that nothing but blanks, a comma, "and", "or" or a name parts; none where an
    `Answer:` line follows them."""
    text = after_thinking(response)
    boxes = _last_boxes(text, joined=False)
    return [] if not boxes or _ANSWER_LINE.search(text, boxes[-1][1]) else [box[2].strip() for box in boxes]


def _last_boxes(text: str, joined: bool) -> list[tuple[int, int, str]]:
    """The last box that has content (or else the last) and those that stand right before it; `joined`: by a comma,
    "and", a list's mark or a name."""
    boxes = _boxes(text)
    boxes = [box for box in boxes if text[box[2] : box[3]].strip(" .\n")] or boxes[-1:]
    first = max(0, len(boxes) - 1)
    while first > max(0, len(boxes) - _MOST_BOXES):
        begin, end = boxes[first - 1][1], boxes[first][0]
        gap = re.sub(r"\\(?:text|mbox|mathrm)\s*\{([^{}]*)\}", r" \1 ", text[begin : min(end, begin + 40)])
        between = _BETWEEN.fullmatch(re.sub(r"\\(?:q?quad|[,;: ])", " ", gap))
        if end - begin >= 40 or not between or (joined and not (between["joint"] or between["name"])):
            break
        first -= 1
    return [(start, end, _BOX.sub("", text[inside:close])) for start, end, inside, close in boxes[first:]]


def _boxes(text: str) -> list[tuple[int, int, int, int]]:
    """Start and end of every box that is in no other, and of its content; a box inside it is part of that."""
    boxes: list[tuple[int, int, int, int]] = []
    braces: list[
        tuple[int, int]
    ] = []  # of those that are open: where its box begins, -1 without one, and its content
    first, box = _BOX.search(text), -1
    for match in _BOX_OR_BRACE.finditer(text, first.start()) if first else ():
        if match["box"]:
            box = match.start()
            if text[match.end() : match.end() + 1] == "{":
                continue
            if word := _BARE.match(text, match.end(), match.end() + _LINE):
                boxes.append((box, word.end(), word.start(), word.end()))
        elif match[0] == "{":
            braces.append((box, match.end()))
        elif match[0] == "}" and braces:
            start, inside = braces.pop()
            if start >= 0:
                while boxes and boxes[-1][0] > start:
                    boxes.pop()
                boxes.append((start, match.end(), inside, match.start()))
        box = -1
    return boxes


def final_answer(response: str) -> str | None:
    """The last boxed or `Answer:` value; failing both, the last "answer is …"; None if nothing is given.

    An `Answer:` line that holds a box gives the box. A heading such as `**Final Answer**` has its value below.
    """
    text = after_thinking(response)
    position, answer = last_box(text) or (0, None)
    for match in _ANSWER_LINE.finditer(text, position):
        value = match["gsm8k"]
        if value is None:
            start = match.start()
            before = ("-" if start > _WINDOW else "") + text[max(0, start - _WINDOW) : start]
            if match["answer"] is not None and not _LEAD.search(before):
                continue
            value = match["answer"] or ""
            value = value if value.strip(" *_\t") else _below(text, match.end())
        if value.strip(" *_#") and "boxed" not in value and "fbox" not in value:
            answer = _sentence_value(value)
    if answer is None and (sentences := list(_SENTENCE.finditer(text))):
        return _first_sentence(text[sentences[-1].end() :].partition("\n")[0])
    return tagged(response) if answer is None else answer


def _below(text: str, position: int) -> str:
    """The next line that is not blank, in a displayed formula or not."""
    return re.sub(r"^\s*(?:\$\$|\\\[)?\s*", "", text[position : position + 2 * _LINE]).partition("\n")[0]


def given(response: str) -> str:
    """The final answer; a short response of one line that marks none is an answer as a whole. Empty when
    there is none."""
    answer = final_answer(response)
    if answer is None:
        answer = after_thinking(response).strip()
        if len(answer) > _LINE or "\n" in answer:
            return ""
    answer = answer.strip().strip("*`").strip()
    if len(answer) <= _LINE:
        answer = re.sub(r"^(?:\\[,;:! ]|~|\s|=(?!=))+|(?:\\[,;:! ]|\\$|~|\s)+$", "", answer)
    return answer


def _sentence_value(value: str) -> str:
    """The value in what follows `Answer:`: "The largest n is 34." gives 34."""
    value = value.strip().strip("*_`").strip()
    sentence = _CLAUSE.fullmatch(value) if len(value) <= 5 * _LINE else None
    return _first_sentence(sentence[1]) if sentence else value


def _first_sentence(text: str) -> str:
    end = r"\.(?=\s|$)|(?:\s[-–—]\s(?=[A-Za-z]{2})|;\s)(?!(?:or|and|also|maybe|possibly|perhaps)\b)"
    text = re.sub(r"\*\*([^*\s][^*]*)\*\*", r"\1", text.strip())
    return re.split(end, text, maxsplit=1)[0].strip().strip("*_`").strip()


def choice_letter(text: str, described: bool = False) -> str | None:
    """The letter of a multiple choice, in its own case: alone, marked, or before its option's text.

    `B`, `(B)`, `**B.** 12`, `\\textbf{(B)}\\ 12`, `Option B`; with `described`, where nothing but a choice is asked
    for, also `B (Paris)`, `B - Paris`, `B, Paris`. None for several letters and for other text.
    """
    if len(text) > 5 * _LINE:
        return None
    text = unicodedata.normalize("NFKC", text)
    text = re.sub(r"[{}$*_`~\"“”]|\\[,;:! ()\[\]]|\\q?quad\b|\\(?=\s)|</?[bi]>", " ", _FONTS.sub(" ", text))
    text = " ".join(text.split())
    match = _CHOICE.match(text) or (_DESCRIBED.match(text) if described else None)
    if match is None:
        return None
    rest = _NO_HEDGE.sub("", text[match.end() :].strip())
    labelled = match[0].rstrip().endswith((".", ":"))  # the option's text follows
    another = _ANOTHER.search(rest)
    if (another and another[0][-1] != match["letter"].upper()) or (_DENIED.match(rest) and not labelled):
        return None
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


def marked(response: str) -> str:
    """What the last `<answer>` holds, or a box behind it; without a tag the last box, the only fence or an answer
    line; else nothing."""
    text, inside = after_thinking(response), tagged(response)
    box = last_box(text)
    if box and (inside is None or box[0] > text.lower().rfind("<answer>")):
        return box[1]
    if inside is None:
        blocks = fences(text)
        return blocks[0][1] if len(blocks) == 1 else final_answer(text) or ""
    return inside


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


TOLERANCE = 1e-3
"""Relative difference within which figures with decimals agree: 33.3 and 33.33."""


def in_percent(bare: float) -> bool:
    """How a figure without a percent sign is read beside one that has it, in every domain: above 1 it is a number of
    percent (20 is 20%, never 2000%), up to 1 it is a share (0.125 is 12.5%, never 0.125%), as are fractions and
    formulas. So no percentage is right for two truths. A table's truth with the sign is met by percent alone."""
    return abs(bare) > 1
