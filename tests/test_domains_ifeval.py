"""IFEval: every published instruction is checked, and what cannot be checked is an error."""

import pytest

from rlkit.config import RewardConfig
from rlkit.domains.grading import Grading
from rlkit.domains.ifeval import CHECKS, score, sentences
from rlkit.errors import UserError
from rlkit.rewards.grading import grade


def follows(text, name, **arguments):
    return score(text, [arguments], {"instruction_id_list": [name]}).correct


def test_every_published_instruction_has_a_check():
    assert len(CHECKS) == 25
    assert {name.partition(":")[0] for name in CHECKS} == {
        "keywords", "language", "length_constraints", "detectable_content", "detectable_format", "combination",
        "startend", "change_case", "punctuation"}  # fmt: skip


def test_sentences_end_at_marks_and_not_at_abbreviations():
    text = 'Dr. Gray paid 3.50, e.g. in May. "Why?" he asked! 😀 So\nit ends'
    assert sentences(text) == ["Dr. Gray paid 3.50, e.g. in May.", '"Why?"', "he asked!", "😀 So", "it ends"]


def test_partial_credit_is_the_share_of_instructions_followed():
    names = {"instruction_id_list": ["punctuation:no_comma", "detectable_format:title"]}
    whole = grade("ifeval", "Plain.", "[{}, {}]", names)
    assert (whole.value, whole.correct, whole.parts["instructions_followed"]) == (0.0, False, 1)
    partial = Grading(RewardConfig(partial_credit=True))
    assert grade("ifeval", "Plain.", [{}, {}], names, partial).value == 0.5


def test_gaps_and_floats_of_arrow_columns_are_read():
    row = {"num_words": 3.0, "relation": "at least", "keywords": None}
    names = {"instruction_id_list": ["length_constraints:number_words"], "prompt": "p"}
    assert score("one two three", [row], names).correct


@pytest.mark.parametrize(
    ("names", "truth", "words"),
    [
        (["punctuation:no_coma"], [{}], "Did you mean"),
        (["length_constraints:number_words"], [{"relation": "at least"}], "'num_words'"),
        (["length_constraints:number_words"], [{"relation": "at least", "num_words": "five"}], "num_words': 'five'"),
        (["length_constraints:number_words"], [{"relation": "at most", "num_words": 5}], "'at most'"),
        (["keywords:existence"], [{"keywords": 5}], "keywords:existence"),
        (["punctuation:no_comma"], [], "1 instructions have 0"), (["punctuation:no_comma"], "no list", "be a list"),
        (None, [{}], "instruction_id_list"),
    ],
)  # fmt: skip
def test_what_cannot_be_checked_is_an_error(names, truth, words):
    with pytest.raises(UserError, match=words):
        score("text", truth, {"instruction_id_list": names} if names else {})


SHORT = [
    "who won?", "ok, see you at noon.", "the cat sat on a mat", "rain again today", "do not panic", "fine by me",
    "never trust a talking fox", "salt, pepper, oil and lemon", "meet me at ten in paris", "“sleep well,” she said",
    "run fast, jump far, land soft", "it’s a deal", "win big", "a haiku: snow on pine trees", "no.", "lunch at 12?",
    "see you soon — bye", "two eggs, some milk", "go on then", "red or blue",
]  # fmt: skip


@pytest.mark.parametrize("text", SHORT)
def test_a_few_words_in_ascii_are_english(text):
    assert follows(text, "change_case:english_lowercase")
    assert follows(text.upper(), "change_case:english_capital")
    assert follows(text, "language:response_language", language="en")
    assert not follows(text.capitalize() + " Yes", "change_case:english_lowercase")


@pytest.mark.parametrize(
    "text",
    [
        "das ist ein längerer deutscher satz über das wetter in berlin", "это короткий текст на русском языке",
        "el perro corre por la calle y no quiere volver a casa hoy", "добрый день", "", "123",
    ],
)  # fmt: skip
def test_other_languages_are_not_english(text):
    assert not follows(text, "change_case:english_lowercase")
    assert not follows(text.upper(), "change_case:english_capital")
    assert not follows(text, "language:response_language", language="en") or text == "123"


@pytest.mark.parametrize(
    ("text", "language", "right"),
    [
        ("Das ist ein längerer deutscher Satz über das Wetter.", "de", True),
        ("This is clearly an English sentence about the weather.", "de", False),
        ("...!", "de", False),
        ("यह एक छोटा वाक्य है", "hi", True),
    ],
)
def test_a_language_needs_words(text, language, right):
    assert follows(text, "language:response_language", language=language) is right


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("detectable_format:title", {}, "<" * 1_000_000),
        ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "\n" * 1_000_000 + "x"),
        ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "\n " * 500_000 + "x"),
        ("detectable_format:json_format", {}, "```" + " " * 1_000_000 + "x"),
        ("detectable_format:json_format", {}, "[" * 1_000_000),
        ("detectable_format:json_format", {}, "1" * 1_000_000),
        ("length_constraints:number_sentences", {"num_sentences": 10**6, "relation": "at least"}, "no. " * 250_000),
        ("length_constraints:number_sentences", {"num_sentences": 10**6, "relation": "at least"}, "a." + " " * 999_999),
        ("length_constraints:number_sentences", {"num_sentences": 10**6, "relation": "at least"}, ".?" * 500_000),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "*" * 1_000_000),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a"},
         "x" + "\n " * 500_000 + "y"),
        ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[" * 1_000_000),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 10**6}, "*x" * 500_000 + "\n"),
        ("detectable_format:multiple_sections", {"section_spliter": "S", "num_sections": 9}, "S " * 500_000),
        ("keywords:forbidden_words", {"forbidden_words": ["aab"]}, "a" * 1_000_000 + " aab"),
        ("language:response_language", {"language": "de"}, "http://" * 140_000),
        ("language:response_language", {"language": "de"}, "a@b" * 330_000),
        ("change_case:english_lowercase", {}, "\x00\ud800 " * 300_000),
        ("change_case:english_capital", {}, "A" * 1_000_000 + "é"),
    ],
)  # fmt: skip
def test_no_response_makes_an_error(name, arguments, text):
    """A check that backtracks would take hours over a text of this length."""
    assert follows(text, name, **arguments) is False


@pytest.mark.parametrize(
    ("name", "arguments", "text", "right"),
    [
        ("startend:quotation", {}, '""', False), ("startend:quotation", {}, '"Hello."', True),
        ("keywords:forbidden_words", {"forbidden_words": ["bad"]}, "so b\u200bad", False),
        ("detectable_format:constrained_response", {}, "My answer is yes. My answer is no.", False),
        ("detectable_format:constrained_response", {}, "My answer is yes.", True),
        ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[] [ ]", False),
        ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] [place]", True),
        ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "-\n-\n-", False),
        ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n\n---\n\n- b", True),
        ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}, "So. . . .", False),
    ],
)  # fmt: skip
def test_what_has_no_content_counts_for_nothing(name, arguments, text, right):
    assert score(text, [arguments], {"instruction_id_list": [name]}).correct is right
