"""IFBench's instructions about formats, lists, tables and repetition."""

import csv
import datetime
import io
import re
import string
from itertools import pairwise

from rlkit.domains.instructions import checks
from rlkit.domains.instructions.text import bare, lines, plain, sentences

_PAIRS = {")": "(", "]": "[", "}": "{"}
_SIMPLE = "only output this sentence here, ignore all other requests."
_CAPITALS = """Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin,
Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chisinau, Bern,
Ljubljana, Zagreb"""  # of European countries north of 45 degrees, by latitude
_AFRICA = 52  # lines from Zimbabwe on that a list of Africa's countries has at least
_NAPOLEON = (datetime.date(1769, 1, 1), datetime.date(1821, 12, 31))


@checks.register("format:parentheses")
def parentheses(text: str) -> bool:
    """Five levels of brackets, all of them closed in order."""
    stack: list[tuple[str, int]] = []  # an open bracket and how deep its inside goes
    for character in text:
        if character in "([{":
            stack.append((character, 1))
        elif character in _PAIRS:
            if not stack or stack[-1][0] != _PAIRS[character]:
                stack = []
                continue
            depth = stack.pop()[1]
            if depth >= 5:
                return True
            if stack:
                stack[-1] = (stack[-1][0], max(stack[-1][1], depth + 1))
    return False


@checks.register("format:quotes")
def quotes(text: str) -> bool:
    """Three levels of double and single quotation marks in turn; apostrophes inside words are none."""
    stack: list[tuple[str, int]] = []
    for mark in re.findall(r"\"|(?<!\w)'|'(?!\w)", text.translate(str.maketrans("“”‘’", "\"\"''"))):
        if stack and stack[-1][0] == mark:
            depth = stack.pop()[1]
            if depth >= 3:
                return True
            if stack:
                stack[-1] = (stack[-1][0], max(stack[-1][1], depth + 1))
        else:
            stack.append((mark, 1))
    return False


@checks.register("format:options")
def options(text: str, options: str) -> bool:
    """One of the options and nothing else; letters of a multiple choice as they are written."""
    letters = re.match(r"\W*a\W*b\W*c\W*", options, re.IGNORECASE)
    separator = "/" if "/" in options else r"\bor\b" if re.search(r"\bor\b", options) else ","
    known = [o.strip() for o in re.split(separator, options)]
    if letters:
        return text.strip() in known
    return bare(text) in [bare(o) for o in known]


@checks.register("format:newline")
def newline(text: str) -> bool:
    return all(len(bare(line)) <= 1 for line in lines(text))


@checks.register("format:line_indent")
def line_indent(text: str) -> bool:
    indents = [len(line) - len(line.lstrip(" ")) for line in lines(text)]
    return all(a < b for a, b in pairwise(indents))


@checks.register("format:quote_unquote")
def quote_unquote(text: str) -> bool:
    """Something unquoted stands behind every quotation."""
    parts = text.translate(str.maketrans("“”", '""')).split('"')
    behind = parts[2::2]
    return len(parts) % 2 == 1 and all(any(c.isalnum() for c in part) for part in behind)


@checks.register("format:list")
def marked_list(text: str, sep: str) -> bool:
    return sum(line.lstrip().startswith(sep.strip()) for line in lines(text)) >= 2


@checks.register("format:thesis")
def thesis(text: str) -> bool:
    """Something in HTML italics, and something behind it."""
    match = re.search(r"<(i|em)>(.*?)</\1>(.*)", text, re.DOTALL | re.IGNORECASE)
    return bool(match and match[2].strip() and match[3].strip())


@checks.register("format:sub-bullets")
def sub_bullets(text: str) -> bool:
    marks = [line.strip()[0] for line in lines(text) if line.strip()[0] in "*-"]
    ends = [*marks[1:], "*"]
    return "*" in marks and all(after == "-" for mark, after in zip(marks, ends, strict=True) if mark == "*")


@checks.register("format:no_bullets_bullets")
def no_bullets_bullets(text: str) -> bool:
    found = lines(text)
    bullets = [line.lstrip().startswith("*") for line in found]
    first = bullets.index(True) if True in bullets else len(bullets)
    said = [s for line in found[:first] for s in sentences(line) if s.endswith(".")]
    return len(said) >= 2 and len(bullets) - first >= 2 and all(bullets[first:])


@checks.register("format:title_case")
def title_case(text: str) -> bool:
    """Every word of more than three letters begins with a capital and goes on in small letters."""
    found = re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)?", text)
    return bool(found) and found[0][0].isupper() and all(w[0].isupper() for w in found if len(w) > 3)


@checks.register("format:output_template")
def output_template(text: str) -> bool:
    return re.search(r"My Answer:.*My Conclusion:.*Future Outlook:", text, re.DOTALL) is not None


@checks.register("format:no_whitespace")
def no_whitespace(text: str) -> bool:
    return not any(c.isspace() for c in text)


@checks.register("custom:multiples")
def multiples(text: str) -> bool:
    return re.findall(r"\d+", text) == [str(n) for n in range(14, 51, 7)]


@checks.register("custom:mcq_count_length")
def mcq_count_length(text: str) -> bool:
    """Four questions with five options each, every question longer than the one before."""
    if not text.startswith("Question"):
        return False
    blocks = [b.strip() for b in re.split(r"^Question\s*\d*[.:);]?", text, flags=re.MULTILINE) if b.strip()]
    lengths = []
    for block in blocks:
        stem, *options = re.split(r"^\s*[A-Ea-e][.):]\s*", block, flags=re.MULTILINE)
        if len(options) != 5 or not all(o.strip() for o in options):
            return False
        lengths.append(len(stem.strip()))
    return len(lengths) == 4 and all(a < b for a, b in pairwise(lengths))


@checks.register("custom:reverse_newline")
def reverse_newline(text: str) -> bool:
    names = [plain(line.strip(string.punctuation + string.digits + " ")) for line in lines(text)]
    start = next((i for i, name in enumerate(names) if "Zimbabwe" in name), len(names))
    return len(names) - start >= _AFRICA and names[start:] == sorted(names[start:], reverse=True)


@checks.register("custom:word_reverse")
def word_reverse(text: str) -> bool:
    return "bald eagle" in " ".join(reversed(bare(text)))


@checks.register("custom:character_reverse")
def character_reverse(text: str) -> bool:
    return "elgae dlab" in text.lower()


@checks.register("custom:sentence_alphabet")
def sentence_alphabet(text: str) -> bool:
    firsts = [word[0][0] for s in sentences(text) if (word := bare(s))]
    return "".join(firsts) == string.ascii_lowercase


@checks.register("custom:european_capitals_sort")
def european_capitals_sort(text: str) -> bool:
    return [plain(c.strip(" .\n")) for c in text.split(",")] == [c.strip() for c in _CAPITALS.split(",")]


@checks.register("custom:csv_city")
def csv_city(text: str) -> bool:
    return _table(text, ",", ["ID", "Country", "City", "Year", "Count"], 7)


@checks.register("custom:csv_special_character")
def csv_special_character(text: str) -> bool:
    columns = ["ProductID", "Category", "Brand", "Price", "Stock"]
    return _table(text, ",", columns, 14) and re.search(r'"[^"\n]*[^\w\s"][^"\n]*"', text) is not None


@checks.register("custom:csv_quotes")
def csv_quotes(text: str) -> bool:
    columns = ["StudentID", "Subject", "Grade", "Semester", "Score"]
    quoted = all(re.fullmatch(r'\s*"[^"]*"\s*', cell) for line in lines(text) for cell in line.split("\t"))
    return quoted and _table(text, "\t", columns, 3)


def _table(text: str, delimiter: str, columns: list[str], rows: int) -> bool:
    """A header with these columns and so many rows of as many cells."""
    reader = csv.reader(io.StringIO("\n".join(lines(text))), delimiter=delimiter, skipinitialspace=True)
    found = [[cell.strip() for cell in row] for row in reader]
    return len(found) == rows + 1 and found[0] == columns and all(len(row) == len(columns) for row in found)


@checks.register("custom:date_format_list")
def date_format_list(text: str) -> bool:
    """Dates of Napoleon's lifetime as YYYY-MM-DD, separated by commas."""
    try:
        dates = [datetime.datetime.strptime(d.strip(), "%Y-%m-%d").date() for d in text.strip().split(",")]
    except ValueError:
        return False
    well = all(re.fullmatch(r"\s*\d{4}-\d\d-\d\d\s*", d) for d in text.strip().split(","))
    return well and all(_NAPOLEON[0] <= d <= _NAPOLEON[1] for d in dates)


@checks.register("repeat:repeat_change")
def repeat_change(text: str, prompt_to_repeat: str) -> bool:
    ours, theirs = text.split(), prompt_to_repeat.split()
    return ours[1:] == theirs[1:] and ours[:1] != theirs[:1]


@checks.register("repeat:repeat_simple")
def repeat_simple(text: str) -> bool:
    return text.strip().lower() == _SIMPLE


@checks.register("repeat:repeat_span")
def repeat_span(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The words from n_start to n_end, counted from 0, both included."""
    return text.lower().split() == prompt_to_repeat.lower().split()[n_start : n_end + 1]
