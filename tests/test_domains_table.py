"""Tables: which answers are right, and that no answer is right for two truths."""

import pytest

from rlkit.domains.table import score
from rlkit.errors import UserError


def boxed(answer):
    return rf"By the usual steps, \boxed{{{answer}}}."


# fmt: off
RIGHT = [
    ("1,234.5", "1234.5"), (r"\$1,234.5", "1234.5"), ("12.3%", "0.123"), ("12.3", "12.3%"), ("(5.2)", "-5.2"),
    ("33.3", "33.33"), ("100", "100.0"), ("5 million", "5,000,000"), ("2|5", "5|2"), ("5, 2", "2|5"),
    ("1,000|$200", "200|1000"), (r"\text{New York}", "new york"), ("-12.3%", "-12.3"), ("2019-20", "2019–20"),
    # blanks between thousands
    ("1 200 000", "1,200,000"), (r"1\,200\,000", "1200000"), (r"1\;200\;000.5", "1200000.5"),
    ("45 300|12", "12|45,300"), ("1\u202f200\u00a0000", "1,200,000"), ("1~200", "1200"), (r"\$ 1 200", "1200"),
    ("-1 200", "-1,200"),
    # words
    ("three", "3"), ("Twelve", "12"), ("twenty-one", "21"), ("twenty one", "21"), ("three million", "3,000,000"),
    ("3", "three"), ("seven|two", "2|7"), (r"\text{zero}", "0"), ("12 percent", "12%"), ("five percent", "5%"),
    (r"12.5 \text{ kilometres}", "12.5"), ("5 km", "5"), ("45 years", "45"),
    ("two hundred", "200"), ("200", "two hundred"),
    # an approximation sign
    ("≈ 5.2", "5.2"), (r"\approx 5.2", "5.2"), ("~5.2", "5.2"), ("about 5.2", "5.2"),
    ("approximately 14.2%", "14.2%"), (r"\approx \$1,200", "1200"), (r"\text{approximately } 33.3", "33.33"),
    (r"\sim 12", "12"), ("≈ -3.5|4", "4|-3.5"),
    # bold, full-width, mathematics
    ("**42**", "42"), (r"\textbf{42}", "42"), (r"\mathbf{\text{North}}", "north"), ("４２", "42"), ("$42$", "42"),
    ("Ｎｏｒｔｈ", "North"), (r"\(42\)", "42"), (r"1.2 \times 10^6", "1,200,000"), (r"1.5 \times 10^{-3}", "0.0015"),
    (r"\text{North | South}", "South|North"), (r"\text{North}\mid\text{South}", "South|North"),
    ("'North', \"South\"", "South|North"), ("North, East, and West", "West|East|North"), ("2018.0", "2018"),
    ("2018", "2018.0"), ("St. John’s", "St. John's"), ("“Up” she said", '"Up" she said'),
    # labels, brackets, a percent sign
    ("= 1234", "1234"), ("x = 1234", "1234"), (r"\text{Total: }1234", "1234"), ("year: 2018", "2018"),
    ("['North', 'South']", "South|North"),
    (r"\{North, South\}", "North|South"), ("12.5%", "12.5"), ("12.5%", "0.125"), ("3%", "3"), ("2019--20", "2019-20"),
    # a measure
    ("5 years", "5"), (r"12.5\text{ km}", "12.5"), (r"1,200 \text{ miles}", "1200"), ("5 days|6 days", "6|5"),
]
WRONG = [
    ("-12.3%", "12.3%"), ("2018", "2019"), ("33.3", "33.39"), ("2|5|5", "2|5"), ("2|2|5", "2|5|5"), ("5", "5|2"),
    ("2019-2020", "2018-2019"), ("__import__('math').sqrt(16)", "4"), ("8**8**8**8", "4"), ("0.142", "14.2%"),
    ("1e999", "7301.5"), ("1e999", "1999"), ("1e999", "4.2%"), ("1e999", "0"), ("1e999|1e999", "3|4"),
    ("-1e999", "-5"), ("1e308 billion", "7"), ("nan", "5"), ("inf", "5"), (r"\infty", "5"), ("2018.5", "2019"),
    ("2018.0", "2019"), ("2019", "2018.0"), ("0.0001", "0"), ("0", "0.0001"), ("0.000000", "1e-9"),
    ("9007199254740993", "9007199254740992"), ("1 200", "1,201"), ("12 000", "12"), ("1 20", "120"),
    ("twenty-two", "21"), ("three", "30"), ("three or four", "3"), ("≈ 5.2", "5.3"), ("about 5", "-5"),
    ("about time", "time"), ("12 or 13", "12"), ("12 to 15", "12"), ("12 of 15", "15"), ("12 medals", "13"),
    ("12", "12 monkeys"), ("45 or so more", "45"), ("North or South", "North"), ("North|South", "North"),
    ("1e6", "1.1e6"), (r"1.2 \times 10^6", "1.2"), ("52", "5²"), ("5²", "52"), ("", "5"), ("|", "5"), (",", "5"),
    ("4.2|", "4.3"), ("0.125%", "0.125"), ("1250%", "12.5"), ("300%", "3"), ("123400%", "1234"), ("--5.2", "-5.2"),
    ("--5.2", "5.2"), ("not: 5", "6"),
    # words that may change the number
    ("5 hundred", "5"), ("5 dozen", "5"), ("5 tenths", "5"), ("5 squared", "5"), ("5 below zero", "5"),
    ("5 score", "5"),
    ("5 wrong", "5"), ("20 percent less", "20"), ("5 quarters", "5"), ("not: 5", "5"), ("anything except: 5", "5"),
    ("5", "5 years"), ("5 km", "5 miles"), ("5 km", "6"), ("in", "5"), ("12.5%", "12.5 million"),
    ("12.5 million", "12.5%"), ("5 years less", "5"), ("below: 5", "5"), ("total or: 5", "5"), ("two hundred", "2"),
    ("minus = 5", "5"),
]
# fmt: on


@pytest.mark.parametrize(("answer", "truth"), RIGHT)
def test_right_answers(answer, truth):
    assert score(boxed(answer), truth, {}).correct is True


@pytest.mark.parametrize(("answer", "truth"), WRONG)
def test_wrong_answers(answer, truth):
    assert score(boxed(answer), truth, {}).correct is False


@pytest.mark.parametrize(
    ("response", "truth", "right"),
    [
        ("\\boxed{North}\n\\boxed{South}", "North|South", True),
        (r"\boxed{North} | \boxed{South}", "South|North", True),
        (r"\boxed{Smith, John} and \boxed{Doe, Ann}", "Smith, John|Doe, Ann", True),
        ("- \\boxed{1,000}\n- \\boxed{2,000}", "1,000|2,000", True), (r"\boxed{1000} \boxed{2000}", "1000", False),
        (r"\boxed{North} \boxed{East}", "North|South", False),
        (r"\boxed{North}. Then \boxed{South}", "North|South", False), (r"\boxed{2000 \boxed{1000}}", "1000", False),
    ],
)  # fmt: skip
def test_each_member_may_have_its_own_box(response, truth, right):
    assert score(response, truth, {}).correct is right


@pytest.mark.parametrize("truth", ["", " | ", None, {"a": 1}, True])
def test_a_truth_that_is_no_text_is_an_error(truth):
    with pytest.raises(UserError, match="must be text"):
        score(boxed("5"), truth, {})


def test_truths_may_be_numbers_and_lists():
    assert score(boxed("5"), 5, {}).correct and score(boxed("5.10"), 5.1, {}).correct
    assert score(boxed("b, 5"), [5, "b"], {}).correct and not score(boxed("5"), [5, "b"], {}).correct
