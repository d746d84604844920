"""IFEval (Zhou et al., arXiv 2311.07911): 25 instructions that a program can check, all of which must be followed.

Unlike the paper's code, keywords are taken literally, sentences are split without NLTK's model, few words in ASCII
count as English, and a bullet, placeholder or quotation without content counts for nothing."""

import inspect
import json
import re
import string
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import after_thinking
from rlkit.domains.grading import parse
from rlkit.errors import UserError, did_you_mean
from rlkit.types import Reward

_SENTENCE_END = re.compile(r"(?<=[.!?‽])\s+|(?<=[.!?‽][\"'”’)\]])\s+")
_SHORT = re.compile(r"\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|u\.s|jr|sr|no|fig)\.$", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_FEW = 8  # words; langdetect is no judge of so short a text
_NO_MARKS = str.maketrans("", "", string.punctuation + "“”‘’—–…")
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u2060\ufeff\u00ad"))  # would hide a forbidden word
_LONGEST = 250_000  # characters of a response; a longer one follows nothing
_ENOUGH = 10_000  # characters from which a language is told


def sentences(text: str) -> list[str]:
    """Pieces that end with . ! or ?, or with a line of their own; abbreviations and decimals do not end one."""
    found: list[str] = []
    for line in text.splitlines():
        joined = False
        for piece in _SENTENCE_END.split(line.strip()):
            if any(map(str.isalnum, piece)):
                found.append(f"{found.pop()} {piece}" if joined else piece)
                joined = _SHORT.search(piece[-6:]) is not None
    return found


def in_language(text: str, code: str) -> bool:
    """Whether a text is in a language (ISO 639-1), as langdetect says; a few words in ASCII letters are English."""
    import langdetect

    found = _WORD.findall(text)
    if code == "en" and 0 < len(found) <= _FEW and all(c.isascii() for c in text if c.isalpha()):
        return True
    langdetect.DetectorFactory.seed = 0
    with suppress(langdetect.LangDetectException):
        return bool(found) and langdetect.detect(text[:_ENOUGH]) == code
    return False


def _count(count: int, relation: str, bound: float) -> bool:
    """Whether a count is `at least` or `less than` a bound, the two relations of IFEval."""
    if relation not in ("at least", "less than"):
        raise UserError(f"An instruction's relation is {relation!r}; it can be 'at least' or 'less than'.")
    return count < bound if relation == "less than" else count >= bound


def _parts(text: str, separator: str) -> list[str]:
    """The pieces between separators; an empty first or last one does not count."""
    parts = [part.strip() for part in text.strip().split(separator)]
    return parts[not parts[0] : len(parts) - (not parts[-1])]


def _first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Paragraphs are separated by blank lines."""
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(parts) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    both = (parts[nth_paragraph - 1][:_ENOUGH], first_word)
    opening, wanted = (part.lower().translate(_NO_MARKS).split()[:1] for part in both)
    return opening == wanted


def _json(text: str) -> bool:
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].strip().removeprefix("json").removeprefix("JSON")
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


_MARKERS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
CHECKS: dict[str, Callable[..., bool]] = {
    "keywords:existence": lambda text, keywords: all(word.lower() in text.lower() for word in keywords),
    "keywords:frequency": lambda text, keyword, frequency, relation:
        _count(text.lower().count(keyword.strip().lower()), relation, frequency),
    "keywords:forbidden_words": lambda text, forbidden_words: not any(
        re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text, re.IGNORECASE) for word in forbidden_words),
    "keywords:letter_frequency": lambda text, letter, let_frequency, let_relation:
        _count(text.lower().count(letter.lower()), let_relation, let_frequency),
    "language:response_language": lambda text, language: in_language(text, language),
    "length_constraints:number_sentences": lambda text, num_sentences, relation:
        _count(len(sentences(text)), relation, num_sentences),
    "length_constraints:number_words": lambda text, num_words, relation:
        _count(len(_WORD.findall(text)), relation, num_words),
    "length_constraints:number_paragraphs": lambda text, num_paragraphs:
        all(parts := _parts(text, "***")) and len(parts) == num_paragraphs,
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda text, num_placeholders:
        sum(bool(name.strip()) for name in re.findall(r"\[([^\[\]]*)\]", text)) >= num_placeholders,
    "detectable_content:postscript": lambda text, postscript_marker:
        re.search(_MARKERS.get(postscript_marker) or re.escape(postscript_marker), text, re.IGNORECASE) is not None,
    "detectable_format:number_bullet_lists": lambda text, num_bullets:
        len(re.findall(r"^[^\S\n]*(?:\*(?!\*)|-(?!-))[^\S\n]*\S", text, re.MULTILINE)) == num_bullets,
    "detectable_format:constrained_response": lambda text: sum(answer in text for answer in _ANSWERS) == 1,
    "detectable_format:number_highlighted_sections": lambda text, num_highlights:
        sum(bool(p.strip("* ")) for p in re.findall(r"\*\*[^\n*]*\*\*|\*[^\n*]*\*", text)) >= num_highlights,
    "detectable_format:multiple_sections": lambda text, section_spliter, num_sections:
        len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": lambda text:
        any(line.partition("<<")[2].rpartition(">>")[0].strip("<> ") for line in text.splitlines()),
    "combination:two_responses": lambda text:
        len(parts := _parts(text, "******")) == 2 and all(parts) and parts[0] != parts[1],
    "combination:repeat_prompt": lambda text, prompt_to_repeat:
        text.strip().lower().startswith(prompt_to_repeat.strip().lower()),
    "startend:end_checker": lambda text, end_phrase:
        text.strip().strip('"').lower().endswith(end_phrase.strip().lower()),
    "startend:quotation": lambda text: bool(text.strip('" \n')) and text.strip()[0] == '"' == text.strip()[-1],
    "change_case:capital_word_frequency": lambda text, capital_frequency, capital_relation:
        _count(sum(word.isupper() for word in _WORD.findall(text)), capital_relation, capital_frequency),
    "change_case:english_capital": lambda text: text.isupper() and in_language(text.lower(), "en"),
    "change_case:english_lowercase": lambda text: text.islower() and in_language(text, "en"),
    "punctuation:no_comma": lambda text: "," not in text,
}  # fmt: skip
"""Each instruction's name and its check: a function of the response and of the instruction's arguments."""


@scorer("ood__ifeval", "ifeval")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the response outside the reasoning follows every instruction; the value is the share that is followed. The
    truth has the arguments of each instruction, a list of mappings (or its JSON or Python text); extra_info has
    `instruction_id_list`, and `prompt` for instructions that repeat it."""
    names, prompt = extra_info.get("instruction_id_list"), extra_info.get("prompt")
    if not isinstance(names, list) or not names:
        raise UserError("An ifeval row needs extra_info.instruction_id_list, a list of names.")
    arguments = parse(ground_truth, list, "instructions")
    if len(names) != len(arguments):
        raise UserError(f"{len(names)} instructions have {len(arguments)} sets of arguments.")
    text = after_thinking(response)
    text = "" if len(text) > _LONGEST else text.translate(_INVISIBLE).strip()
    checks = [_bound(name, given, prompt) for name, given in zip(names, arguments, strict=True)]
    followed = [bool(text) and check(text) for check in checks]
    count = {"instructions_followed": sum(followed), "instructions_total": len(followed)}
    return Reward.of(all(followed), sum(followed) / len(followed), **count)


def _bound(name: Any, arguments: Mapping[str, Any] | None, prompt: Any) -> Callable[[str], bool]:
    """An instruction's check with its arguments, tried on a word, so that its errors are the row's own."""
    if name not in CHECKS:
        raise UserError(f"Unknown instruction {name!r}.{did_you_mean(str(name), CHECKS)}")
    check = CHECKS[name]
    values = {"prompt_to_repeat": prompt} | {k: v for k, v in (arguments or {}).items() if v is not None}
    known = list(inspect.signature(check).parameters)[1:]
    given = {name: values[name] for name in known if values.get(name) is not None}
    try:
        check("word", **given)
    except (TypeError, AttributeError) as problem:
        raise UserError(f"The arguments of the instruction {name!r} are {given}: {problem}.") from None
    return lambda text: check(text, **given)
