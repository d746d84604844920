"""Notations for numbers that are worked out: determinants, combinations and permutations."""

import re

_OF = r"\\?(?:mathrm\s*\{{)?{letter}\}}?"
_NUMBER = r"\{{?\s*(?P<{name}>\d+)\s*\}}?"


def _forms(letter: str) -> list[re.Pattern[str]]:
    """C(5,2), {}_5C_2, ^5C_2 and C_5^2, for C or P."""
    symbol = _OF.format(letter=letter)
    n, k = _NUMBER.format(name="n"), _NUMBER.format(name="k")
    return [
        re.compile(rf"{symbol}\s*\(\s*(?P<n>\d+)\s*,\s*(?P<k>\d+)\s*\)"),
        re.compile(rf"(?:\{{\s*\}}\s*)?[_^]\s*{n}\s*{symbol}\s*_\s*{k}"),
        re.compile(rf"{symbol}\s*_\s*{n}\s*\^\s*{k}"),
    ]


_COMBINATIONS, _PERMUTATIONS = _forms("C"), [*_forms("P"), _forms("A")[2]]


def counted(text: str) -> str | None:
    """`C(5,2)` as \\binom{5}{2}, `P(5,2)` as the product 5·4; None for anything else."""
    for form in _COMBINATIONS:
        if match := form.fullmatch(text):
            return rf"\binom{{{match['n']}}}{{{match['k']}}}"
    for form in _PERMUTATIONS:
        if (match := form.fullmatch(text)) and int(match["k"]) <= int(match["n"]) <= 1000:
            return rf"\frac{{{match['n']}!}}{{({match['n']}-{match['k']})!}}"
    return None


def determinant(rows: list[list[str]]) -> str | None:
    """The determinant of a square matrix of up to 5 rows, written out along its first row (Laplace)."""
    if not 1 <= len(rows) <= 5 or any(len(row) != len(rows) for row in rows):
        return None
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for column, cell in enumerate(rows[0]):
        minor = determinant([row[:column] + row[column + 1 :] for row in rows[1:]])
        terms.append(f"{'-' if column % 2 else '+'}({cell})*({minor})")
    return "0" + "".join(terms)
