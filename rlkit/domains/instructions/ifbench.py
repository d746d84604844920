"""IFBench's instructions about words, counts and sentences; those about formats are in ifbench_formats.py.

Checks follow the wording of the instruction. Syllables are counted as groups of vowels, and stop words are the closed
classes of English; `words:start_verb` needs a part-of-speech tagger and is an error.
"""

import re
from itertools import pairwise
from typing import NoReturn

from rlkit.domains.instructions import checks
from rlkit.domains.instructions.text import bare, is_emoji, occurrences, paragraphs, sentences, words
from rlkit.errors import UserError

_CONJUNCTIONS = {"and", "but", "for", "nor", "or", "so", "yet"}
_NAMED = """Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia
Benjamin Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan
Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan
Stella Jonathan"""
_PRONOUNS = """i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she
her hers herself it its itself they them their theirs themselves this that these those who whom whose which what
whoever whomever whatever whichever anybody anyone anything everybody everyone everything nobody nothing somebody
someone something each either neither both all some any none"""
_CLOSED = """a an the and but if or because as until while of at by for with about against between into through during
before after above below to from up down in out on off over under again further then once here there when where why how
few more most other such no nor not only own same so than too very am is are was were be been being have has had having
do does did doing can will just should now don t s d ll m o re ve y ain aren couldn didn doesn hadn hasn haven isn ma
mightn mustn needn shan shouldn wasn weren won wouldn"""
NAMES, PRONOUNS = _NAMED.split(), frozenset(_PRONOUNS.split())
STOP_WORDS = PRONOUNS | set(_CLOSED.split())
_JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_MARKS = ".,!?;:"
_ODD_PRIMES = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43}


@checks.register("count:word_count_range")
def word_count_range(text: str, min_words: int, max_words: int) -> bool:
    return min_words <= len(words(text)) <= max_words


@checks.register("count:unique_word_count")
def unique_word_count(text: str, N: int) -> bool:
    return len(set(bare(text))) >= N


@checks.register("count:conjunctions")
def conjunctions(text: str, small_n: int) -> bool:
    return len(_CONJUNCTIONS & set(bare(text))) >= small_n


@checks.register("count:person_names")
def person_names(text: str, N: int) -> bool:
    return sum(re.search(rf"\b{name}\b", text) is not None for name in NAMES) >= N


@checks.register("count:numbers")
def numbers(text: str, N: int) -> bool:
    """A number with separators (1,234.5) is one."""
    return len(re.findall(r"\d+(?:[.,]\d+)*", text)) == N


@checks.register("count:punctuation")
def punctuation(text: str) -> bool:
    """Every mark, and an interrobang besides."""
    rest = re.sub(r"\?!|!\?|‽", "", text, count=1)
    return rest != text and all(mark in rest for mark in _MARKS)


@checks.register("count:pronouns")
def pronouns(text: str, N: int) -> bool:
    return sum(word in PRONOUNS for word in words(text.lower())) >= N


@checks.register("count:words_japanese")
def words_japanese(text: str, N: int) -> bool:
    every = [word for i, word in enumerate(text.split(), 1) if i % N == 0]
    return all(_JAPANESE.search(w) or w.strip(_MARKS).isdigit() for w in every)


@checks.register("count:keywords_multiple")
def keywords_multiple(
    text: str, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str
) -> bool:
    wanted = {keyword1: 1, keyword2: 2, keyword3: 3, keyword4: 5, keyword5: 7}
    return all(occurrences(word, text) == count for word, count in wanted.items())


@checks.register("ratio:stop_words")
def stop_words(text: str, percentage: float) -> bool:
    found = words(text.lower())
    return bool(found) and 100 * sum(w in STOP_WORDS for w in found) / len(found) <= percentage


@checks.register("ratio:sentence_type")
def sentence_type(text: str) -> bool:
    """Two statements for every question."""
    return _ending(text, ".") == 2 * _ending(text, "?")


@checks.register("ratio:sentence_balance")
def sentence_balance(text: str) -> bool:
    return _ending(text, ".") == _ending(text, "?") == _ending(text, "!")


def _ending(text: str, mark: str) -> int:
    return sum(s.rstrip("\"'”’)] ").endswith(mark) for s in sentences(text))


@checks.register("ratio:overlap")
def overlap(text: str, reference_text: str, percentage: float) -> bool:
    """Trigrams of the response that the reference has, within two points of the share asked for."""
    ours, theirs = (
        {tuple(found[i : i + 3]) for i in range(len(found) - 2)}
        for found in (re.findall(r"\w+|[^\w\s]", t) for t in (text, reference_text))
    )
    return bool(ours) and abs(100 * len(ours & theirs) / len(ours) - percentage) <= 2


@checks.register("ratio:sentence_words")
def sentence_words(text: str) -> bool:
    """Three sentences of one length in characters, with all words different."""
    found = [s.strip() for s in sentences(text)]
    used = bare(text)
    return len(found) == 3 and len({len(s) for s in found}) == 1 and len(used) == len(set(used))


@checks.register("words:alphabet")
def alphabet(text: str) -> bool:
    firsts = [word[0] for word in bare(text)]
    if not firsts or not all("a" <= c <= "z" for c in firsts):
        return False
    return all((ord(b) - ord(a)) % 26 == 1 for a, b in pairwise(firsts))


@checks.register("words:vowel")
def vowel(text: str) -> bool:
    return (
        len(paragraphs(text)) == 1 and "\n" not in text.strip() and len(set("aeiou") & set(text.lower())) <= 3
    )


@checks.register("words:consonants")
def consonants(text: str) -> bool:
    return all(re.search("[bcdfghjklmnpqrstvwxyz]{2}", word) for word in bare(text))


@checks.register("words:palindrome")
def palindrome(text: str) -> bool:
    return sum(len(w) >= 5 and w == w[::-1] for w in bare(text)) >= 10


@checks.register("words:prime_lengths")
def prime_lengths(text: str) -> bool:
    return all(len(word) in _ODD_PRIMES for word in bare(text))


@checks.register("words:repeats")
def repeats(text: str, small_n: int) -> bool:
    found = bare(text)
    return all(found.count(word) <= small_n for word in set(found))


@checks.register("words:odd_even_syllables")
def odd_even_syllables(text: str) -> bool:
    counts = [_syllables(word) % 2 for word in bare(text)]
    return all(a != b for a, b in pairwise(counts))


def _syllables(word: str) -> int:
    """Groups of vowels, without a silent e at the end."""
    count = len(re.findall("[aeiouy]+", word))
    silent = word.endswith("e") and not word.endswith(("le", "ee")) and count > 1
    return max(1, count - silent)


@checks.register("words:last_first")
def last_first(text: str) -> bool:
    found = [bare(s) for s in sentences(text)]
    return all(a and b and a[-1] == b[0] for a, b in pairwise(found))


@checks.register("words:paragraph_last_first")
def paragraph_last_first(text: str) -> bool:
    found = [bare(line) for line in text.splitlines()]
    return all(line[0] == line[-1] for line in found if line)


@checks.register("words:no_consecutive")
def no_consecutive(text: str) -> bool:
    return all(a[0] != b[0] for a, b in pairwise(bare(text)))


@checks.register("words:keywords_specific_position")
def keywords_specific_position(text: str, keyword: str, n: int, m: int) -> bool:
    found = sentences(text)
    return len(found) >= n and bare(found[n - 1])[m - 1 : m] == bare(keyword)


@checks.register("words:words_position")
def words_position(text: str, keyword: str) -> bool:
    found = bare(text)
    return len(found) >= 2 and [found[1]] == [found[-2]] == bare(keyword)


@checks.register("words:start_verb")
def start_verb(text: str) -> NoReturn:
    raise UserError(
        "The instruction 'words:start_verb' needs a part-of-speech tagger, which rlkit does not have."
    )


@checks.register("sentence:keyword")
def keyword(text: str, word: str, N: int) -> bool:
    found = sentences(text)
    return len(found) >= N and occurrences(word, found[N - 1]) > 0


@checks.register("sentence:increment")
def increment(text: str, small_n: int) -> bool:
    counts = [len(bare(s)) for s in sentences(text)]
    return bool(counts) and all(b - a == small_n for a, b in pairwise(counts))


@checks.register("sentence:alliteration_increment")
def alliteration_increment(text: str) -> bool:
    """The longest run of words with one first letter grows from sentence to sentence."""
    runs = [_longest_run([w[0] for w in bare(s)]) for s in sentences(text)]
    return bool(runs) and all(a < b for a, b in pairwise(runs))


def _longest_run(letters: list[str]) -> int:
    longest = run = bool(letters) + 0
    for a, b in pairwise(letters):
        run = run + 1 if a == b else 1
        longest = max(longest, run)
    return longest


@checks.register("format:emoji")
def emoji(text: str) -> bool:
    """Every sentence ends with an emoji, before or behind its mark."""
    ends = [s.replace("\ufe0f", "").rstrip(" .!?\"'”’)") for s in sentences(text)]
    return bool(ends) and all(end and is_emoji(end[-1]) for end in ends)
