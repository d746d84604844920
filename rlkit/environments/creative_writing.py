"""Creative writing: a short text to a brief, whose rewards are measured on the text itself."""

import re
from functools import cache
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
from harper import Linter
from pydantic import Field, PrivateAttr
from pyphen import Pyphen

from rlkit.domains import vocabulary
from rlkit.environments import ActionResult, BaseEnvironment, InvalidAction, environments
from rlkit.environments.base import Params, Problem
from rlkit.errors import UserError

TEXT, FINISHED, UNFINISHED = 6.0, 3.0, -1.0  # the rewards, documented below
GOOD = 0.75  # quality from which a text that meets its brief counts as a success
EASY, HARD = 100.0, 30.0  # Flesch scores between which readability falls from 1 to 0
ERRORS = 5.0  # grammar errors per 100 words at which the grammar score reaches 0
TOPICS, ELEMENTS, SENTENCES = map(vocabulary, ("topics", "elements", "sentences"))  # the last are the expert's


@environments.register("creative_writing")
class CreativeWriting(BaseEnvironment):
    """Write a text on a topic, with required elements, a number of paragraphs and a length in words.

    The text's quality is the mean of visible parts (`info["parts"]`): length within bounds, share of required
    elements, paragraphs of at least two sentences, grammar (Harper), readability (Flesch) and diversity (distinct-2).
    write_paragraph and edit_content earn 6 times the change in quality; finish earns 3 when length, elements and
    structure are met and quality reaches 0.75 (success), else -1.

    Not measured: whether the story is any good. Texts are English.
    """

    purpose: ClassVar[str] = "Write the text that the brief asks for."
    multiline: ClassVar[bool] = True
    actions: ClassVar[dict[str, str]] = {
        "write_paragraph": "the next paragraph's text, at least two sentences",
        "edit_content": "replace a paragraph, e.g. edit_content 1: new text",
        "finish": "hand the text in",
    }

    kind: Literal["creative_writing"] = "creative_writing"
    most_paragraphs: Annotated[int, Field(ge=1, le=6)] = 3
    """Paragraphs of a generated brief, at most."""

    _elements: tuple[str, ...] = PrivateAttr(())
    _words: tuple[int, int] = PrivateAttr((0, 0))  # at least and at most
    _count: int = PrivateAttr(0)  # of paragraphs
    _paragraphs: list[str] = PrivateAttr([])
    _parts: dict[str, float] = PrivateAttr({})  # of what is written

    def problem(self, rng: np.random.Generator) -> Problem:
        count = int(rng.integers(1, self.most_paragraphs + 1))
        shortest = 25 * count + 5 * int(rng.integers(3))
        return {
            "topic": str(rng.choice(TOPICS)),
            "elements": [str(e) for e in rng.choice(ELEMENTS, count + 1, replace=False)],
            "words": [shortest, shortest + 20 * count],
            "paragraphs": count,
        }

    def begin(self, problem: Problem) -> str:
        shortest, longest = map(int, problem["words"])
        elements, count = tuple(map(str, problem["elements"])), int(problem["paragraphs"])
        if not 0 < shortest <= longest or not elements or not 0 < count <= 20:
            raise UserError("A brief has words [shortest, longest], some elements and 1 to 20 paragraphs.")
        self._elements, self._words, self._count = elements, (shortest, longest), count
        self._paragraphs, self._parts = [], {}
        return (
            f"Write about {problem['topic']}: {count} paragraph{'s' * (count > 1)}, "
            f"{shortest} to {longest} words, with {', '.join(elements)}."
        )

    def get_valid_actions(self) -> list[str]:
        written = len(self._paragraphs)
        hidden = {"write_paragraph"} if written >= self._count else set()
        hidden |= set() if written else {"edit_content", "finish"}
        return [n for n in super().get_valid_actions() if n not in hidden]

    def act(self, action: str, params: Params) -> ActionResult:
        text, before = str(params.get("value", "")).strip(), quality(self._parts)
        if action == "finish":
            met = all(self._parts[name] == 1.0 for name in ("length", "elements", "structure"))
            good, said = met and before >= GOOD, f"Brief {'met' if met else 'not met'}, quality {before:.2f}."
            info = {"success": good, "parts": self._parts}
            return ActionResult(said, FINISHED if good else UNFINISHED, True, info)
        index = len(self._paragraphs)
        if action == "edit_content":
            match = re.fullmatch(r"([0-9]{1,2})\s*:(.*)", text, re.DOTALL)
            if match is None or not 1 <= int(match[1]) <= index:
                raise InvalidAction(f"edit_content needs a number from 1 to {index}, a colon and the text.")
            index, text = int(match[1]) - 1, match[2]
        if not words(text):
            raise InvalidAction(f"{action} needs a text.")
        self._paragraphs[index : index + 1] = [" ".join(text.split())]
        self._parts = self._measured()
        shown = ", ".join(f"{name} {value:.2f}" for name, value in self._parts.items())
        gain = quality(self._parts) - before
        return ActionResult(f"Measured: {shown}.", TEXT * gain, False, {"parts": self._parts})

    def _measured(self) -> dict[str, float]:
        """The parts of a text's quality, each between 0 and 1."""
        text, (shortest, longest) = self.render(), self._words
        count = len(words(text))
        return {
            "length": min(count / shortest, 1.0) * min(longest / max(count, 1), 1.0),
            "elements": float(np.mean([mentions(text, e) for e in self._elements])),
            "structure": sum(len(sentences(p)) >= 2 for p in self._paragraphs) / self._count,
            "grammar": grammar(text),
            "readability": min(max((flesch(text) - HARD) / (EASY - HARD), 0.0), 1.0),
            "diversity": distinct(text),
        }

    def expert(self) -> tuple[str, Params]:
        """A plain text from a stock of sentences, each used at most once."""
        done = len(self._paragraphs)
        if done == self._count:
            return "finish", {}
        own, written = self._elements[done :: self._count] or self._elements, " ".join(self._paragraphs)
        stock = [s for s in SENTENCES if s.split("{e}")[0] not in written] or SENTENCES
        goal = self._words[0] * (done + 1) / self._count + 2
        lines: list[str] = []
        while len(lines) < max(len(own), 2) or len(words(written + " " + " ".join(lines))) < goal:
            lines.append(stock[len(lines) % len(stock)].format(e=own[len(lines) % len(own)]))
        return "write_paragraph", {"value": " ".join(lines)}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        text = " ".join(str(s).format(e=rng.choice(ELEMENTS)) for s in rng.choice(SENTENCES, 2))
        if action == "edit_content":
            text = f"{int(rng.integers(1, len(self._paragraphs) + 1))}: {text}"
        return {} if action == "finish" else {"value": text}

    def render(self) -> str:
        return "\n\n".join(self._paragraphs) or "(nothing written yet)"


def quality(parts: dict[str, float]) -> float:
    """The mean of a text's parts; 0 before anything is written."""
    return float(np.mean(list(parts.values()))) if parts else 0.0


def words(text: str) -> list[str]:
    """Lower-case words."""
    return re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)?", text.lower())


def sentences(text: str) -> list[str]:
    """Pieces that end in . ! or ?"""
    return [s.strip() for s in re.findall(r"[^.!?]+[.!?]+", text) if words(s)]


def mentions(text: str, element: str) -> bool:
    """Whether every word of `element` occurs, singular or plural."""
    forms = {w.removesuffix("s") for w in words(text)}
    return all(w.removesuffix("s") in forms for w in words(element))


def distinct(text: str) -> float:
    """Distinct pairs of neighbouring words over all (distinct-2, Li et al. 2016, arXiv 1510.03055); 0 without any."""
    pairs = list(pairwise(words(text)))
    return len(set(pairs)) / len(pairs) if pairs else 0.0


def flesch(text: str) -> float:
    """Flesch's reading ease (1948) of a text with words; pyphen finds a few syllables less than a dictionary has."""
    tokens, count, hyphens = words(text), max(len(sentences(text)), 1), Pyphen(lang="en_US")
    syllables = sum(len(hyphens.positions(w)) + 1 for w in tokens)
    return 206.835 - 1.015 * len(tokens) / count - 84.6 * syllables / len(tokens)


def grammar(text: str) -> float:
    """1 without errors found by Harper, 0 with five or more a hundred words."""
    return max(1 - 100 * len(_linter().lint(text)) / len(words(text)) / ERRORS, 0.0)


_linter = cache(Linter)  # whose first start takes seconds
