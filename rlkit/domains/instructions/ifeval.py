"""The 25 instructions of IFEval.

Two things differ from the paper's code: keywords are taken literally (there they are regular expressions), and
sentences are split without NLTK's model.
"""

import json
import re
from collections.abc import Sequence

from rlkit.domains.instructions import checks
from rlkit.domains.instructions.text import bare, occurrences, paragraphs, related, sentences, words

_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_ENDED = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}


def language(text: str) -> str:
    """ISO 639-1 code of a text's language (langdetect, seeded); "" where it has none."""
    import langdetect

    langdetect.DetectorFactory.seed = 0
    try:
        return str(langdetect.detect(text))
    except langdetect.LangDetectException:
        return ""


@checks.register("keywords:existence")
def existence(text: str, keywords: Sequence[str]) -> bool:
    return all(word.lower() in text.lower() for word in keywords)


@checks.register("keywords:frequency")
def frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return related(text.lower().count(keyword.strip().lower()), relation, frequency)


@checks.register("keywords:forbidden_words")
def forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    return not any(occurrences(word, text) for word in forbidden_words)


@checks.register("keywords:letter_frequency")
def letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return related(text.lower().count(letter.lower()), let_relation, let_frequency)


@checks.register("language:response_language")
def response_language(text: str, language: str) -> bool:
    found = globals()["language"](text)
    return found in (language, "")


@checks.register("length_constraints:number_sentences")
def number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    return related(len(sentences(text)), relation, num_sentences)


@checks.register("length_constraints:number_words")
def number_words(text: str, num_words: int, relation: str) -> bool:
    return related(len(words(text)), relation, num_words)


@checks.register("length_constraints:number_paragraphs")
def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Paragraphs are separated by `***`; an empty one counts only as an error."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text.strip())]
    parts = parts[not parts[0] : len(parts) - (not parts[-1])]
    return all(parts) and len(parts) == num_paragraphs


@checks.register("length_constraints:nth_paragraph_first_word")
def nth_paragraph_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    parts = paragraphs(text)
    if len(parts) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    return bare(parts[nth_paragraph - 1])[:1] == bare(first_word)[:1]


@checks.register("detectable_content:number_placeholders")
def number_placeholders(text: str, num_placeholders: int) -> bool:
    return len(re.findall(r"\[[^\[\]]*\]", text)) >= num_placeholders


@checks.register("detectable_content:postscript")
def postscript(text: str, postscript_marker: str) -> bool:
    marker = _ENDED.get(postscript_marker, re.escape(postscript_marker))
    return re.search(marker, text, re.IGNORECASE) is not None


@checks.register("detectable_format:number_bullet_lists")
def number_bullet_lists(text: str, num_bullets: int) -> bool:
    return len(re.findall(r"^\s*(?:\*[^*]|-)", text, re.MULTILINE)) == num_bullets


@checks.register("detectable_format:constrained_response")
def constrained_response(text: str) -> bool:
    return any(answer in text for answer in _ANSWERS)


@checks.register("detectable_format:number_highlighted_sections")
def number_highlighted_sections(text: str, num_highlights: int) -> bool:
    found = re.findall(r"\*\*[^\n*]*\*\*|\*[^\n*]*\*", text)
    return sum(bool(piece.strip("* ")) for piece in found) >= num_highlights


@checks.register("detectable_format:multiple_sections")
def multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections


@checks.register("detectable_format:json_format")
def json_format(text: str) -> bool:
    body = re.sub(r"^```(?:json)?\s*|\s*```$", "", text.strip(), flags=re.IGNORECASE)
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


@checks.register("detectable_format:title")
def title(text: str) -> bool:
    return any(piece.strip("<> ") for piece in re.findall(r"<<[^\n]+?>>", text))


@checks.register("combination:two_responses")
def two_responses(text: str) -> bool:
    """Two different responses separated by six asterisks."""
    parts = [part.strip() for part in text.strip().split("******")]
    parts = parts[not parts[0] : len(parts) - (not parts[-1])]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


@checks.register("combination:repeat_prompt")
def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


@checks.register("startend:end_checker")
def end_checker(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@checks.register("startend:quotation")
def quotation(text: str) -> bool:
    return len(text.strip()) > 1 and text.strip()[0] == '"' == text.strip()[-1]


@checks.register("change_case:capital_word_frequency")
def capital_word_frequency(text: str, capital_frequency: int, capital_relation: str) -> bool:
    return related(sum(word.isupper() for word in words(text)), capital_relation, capital_frequency)


@checks.register("change_case:english_capital")
def english_capital(text: str) -> bool:
    return text.isupper() and language(text.lower()) in ("en", "")


@checks.register("change_case:english_lowercase")
def english_lowercase(text: str) -> bool:
    return text.islower() and language(text) in ("en", "")


@checks.register("punctuation:no_comma")
def no_comma(text: str) -> bool:
    return "," not in text
