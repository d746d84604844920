"""IFEval, IFBench and LiveBench: every published instruction is known, and what cannot be checked is an error."""

import pytest

from rlkit.config import RewardConfig
from rlkit.domains.instructions import checks
from rlkit.domains.instructions.scoring import score_ifbench, score_ifeval
from rlkit.domains.instructions.text import sentences
from rlkit.domains.livebench.scoring import score as score_livebench
from rlkit.errors import UserError
from rlkit.rewards.grading import Grading, grade


def test_every_published_instruction_has_a_check():
    groups = {name.partition(":")[0] for name in checks.names()}
    ifeval = {"keywords", "language", "length_constraints", "detectable_content", "detectable_format",
              "combination", "startend", "change_case", "punctuation"}  # fmt: skip
    ours = [n for n in checks.names() if n.partition(":")[0] in ifeval]
    assert len(ours) == 25 and len(checks.names()) == 25 + 58
    assert groups - ifeval == {"count", "ratio", "words", "sentence", "format", "custom", "repeat"}


def test_sentences_end_at_marks_and_not_at_abbreviations():
    text = 'Dr. Gray paid 3.50, e.g. in May. "Why?" he asked! 😀 So\nit ends'
    assert sentences(text) == ["Dr. Gray paid 3.50, e.g. in May.", '"Why?"', "he asked! 😀", "So", "it ends"]


def test_partial_credit_is_the_share_of_instructions_followed():
    names = {"instruction_id_list": ["punctuation:no_comma", "detectable_format:title"]}
    whole = grade("ifeval", "Plain.", "[{}, {}]", names)
    assert (whole.value, whole.correct, whole.parts["instructions_followed"]) == (0.0, False, 1)
    partial = Grading(RewardConfig(partial_credit=True))
    assert grade("ifeval", "Plain.", [{}, {}], names, partial).value == 0.5


def test_gaps_and_floats_of_arrow_columns_are_read():
    row = {"num_words": 3.0, "relation": "at least", "keywords": None}
    names = {"instruction_id_list": ["length_constraints:number_words"], "prompt": "p"}
    assert score_ifeval("one two three", [row], names).correct


@pytest.mark.parametrize(
    ("names", "truth", "words"),
    [
        (["punctuation:no_coma"], [{}], "Did you mean"),
        (["words:start_verb"], [{}], "part-of-speech"),
        (["count:numbers"], [{}], "missing a required argument: 'N'"),
        (["punctuation:no_comma"], [], "1 instructions have 0"),
        (["punctuation:no_comma"], "no list", "is a list"),
        (None, [{}], "instruction_id_list"),
    ],
)
def test_what_cannot_be_checked_is_an_error(names, truth, words):
    with pytest.raises(UserError, match=words):
        score_ifeval("text", truth, {"instruction_id_list": names} if names else {})


def test_ifbench_and_livebench_say_what_their_rows_lack():
    with pytest.raises(UserError, match="instruction_id and kwargs"):
        score_ifbench("text", [{"kwargs": []}], {})
    with pytest.raises(UserError, match="Did you mean 'spatial'"):
        score_livebench("**8**", "8", {"task": "spacial"})


@pytest.mark.parametrize(
    ("task", "answer", "truth", "value"),
    [
        ("connections", "**a, b, c, d, e, f, h, x**", "a, b, c, d, e, f, g, h", 0.5),
        ("tablejoin", '<solution>{"a": "b"}</solution>', {"a": "b", "c": "d"}, 2 / 3),
        ("plot_unscrambling", "<solution>B is it. A is it. C is it.</solution>", "A is it. B is it. C is it.", 1 / 3),
    ],
)  # fmt: skip
def test_partial_scores_of_livebench(task, answer, truth, value):
    reward = score_livebench(answer, truth, {"task": task})
    assert reward.parts["score"] == pytest.approx(value) and reward.correct is False
