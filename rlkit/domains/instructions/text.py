"""Words, sentences and paragraphs of a response, as the checks count them."""

import re
import string
import unicodedata

_EMOJI = "\u203c-\u3299\U0001f000-\U0001faff"
_SENTENCE = re.compile(
    rf"[^.!?]*(?:[.!?](?![\s\"'”’)\]{_EMOJI}]|$)[^.!?]*)*(?:[.!?‽]+[\"'”’)\]]*|$)(?:\s*[{_EMOJI}\ufe0f])*"
)
_SHORT = re.compile(r"\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|u\.s|jr|sr|no|fig)\.$", re.IGNORECASE)


def words(text: str) -> list[str]:
    """Runs of letters, digits and underscores."""
    return re.findall(r"\w+", text)


def bare(text: str) -> list[str]:
    """Words between blanks, in lower case and without punctuation; what is punctuation alone is none."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation + "“”‘’—–…"))
    return plain.split()


def sentences(text: str) -> list[str]:
    """Pieces that end with . ! or ?, or with a line of their own; abbreviations and decimals do not end one.
    Emoji behind the mark belong to it."""
    found: list[str] = []
    for line in text.splitlines():
        joined = False
        for match in _SENTENCE.finditer(line):
            piece = match.group().strip()
            if not piece:
                continue
            found[-1:] = [f"{found[-1]} {piece}"] if joined else [*found[-1:], piece]
            joined = bool(_SHORT.search(piece))
    return found


def paragraphs(text: str) -> list[str]:
    """Pieces between blank lines."""
    return [p.strip() for p in re.split(r"\n\s*\n", text) if p.strip()]


def lines(text: str) -> list[str]:
    """Lines that are not blank."""
    return [line for line in text.splitlines() if line.strip()]


def is_emoji(character: str) -> bool:
    return re.fullmatch(f"[{_EMOJI}]", character) is not None


def plain(text: str) -> str:
    """Without accents."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def occurrences(word: str, text: str) -> int:
    """How often a word or phrase stands in a text, as a whole and in any case."""
    return len(re.findall(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text, re.IGNORECASE))


def related(count: float, relation: str | None, bound: float) -> bool:
    """`at least` or `less than` a bound, the two relations of IFEval."""
    return count < bound if relation == "less than" else count >= bound
