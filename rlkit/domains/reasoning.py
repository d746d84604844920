"""reasoning-gym (Stojanovski et al. 2025, arXiv 2505.24760): its data sets as sources, scored by their own scorers."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rlkit.domains import Source, scorer, sources
from rlkit.domains.answers import tagged
from rlkit.domains.grading import Grading, parse
from rlkit.errors import Ungradable, UserError, WrongAnswer, did_you_mean
from rlkit.sandbox import programs
from rlkit.types import Reward, Task

LISTED = ("acre", "gsm_symbolic", "list_functions")
"""Data sets that draw a list as long as themselves: they are made again for each item."""
REFUSED = {
    "isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "time_intervals", "word_ladder",
    "boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour", "arc_agi", "rearc", "composite",
}  # fmt: skip
"""Data sets whose items depend on more than the index, or have no answer in JSON."""
ABILITY = dict.fromkeys(("arithmetic", "algebra", "geometry", "probability"), "math") | {"code": "simulation"}


@sources.register("reasoning_gym")
class ReasoningGym(Source):
    """One of reasoning-gym's data sets, answered in <answer> tags and scored by its own scorer. Item i with seed s is
    drawn from Random(s + i): here the seed is always 0, and training and held-out tasks differ by index."""

    makes: ClassVar[tuple[str, ...]] = ("reasoning_gym__*",)
    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str
    """Name of the data set: chain_sum, knights_knaves, mini_sudoku …"""
    level: Annotated[int, Field(ge=0)] | None = None
    """Level of reasoning-gym's curriculum for every attribute (its last one where it has fewer); None: the default."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Fields of the data set's own configuration."""

    def task(self, index: int) -> Task:
        seed, place = (index, 0) if self.dataset in LISTED else (0, index)
        items = _items(self.dataset, self.level, json.dumps(self.options, sort_keys=True), seed)
        item, ability = items[place], ABILITY.get(items.category, "logic")
        question = item["question"].strip() + "\nGive the final answer in <answer> </answer> tags."
        entry = {"answer": item["answer"], "metadata": json.loads(json.dumps(item["metadata"], default=str))}
        info = {"index": index, "difficulty": self.level or 0, "entry": entry}
        name = f"reasoning_gym__{self.dataset}"
        return Task.ask(name, question, item["answer"], ability=ability, extra_info=info)


@lru_cache(64)
def _items(dataset: str, level: int | None, options: str, seed: int) -> Any:
    """The data set, with every attribute at a level of its curriculum where one is given."""
    import reasoning_gym
    from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum

    whose = f"data.train reasoning_gym: dataset {dataset!r}"
    if dataset in REFUSED:
        raise UserError(f"{whose} depends on more than the index, or has no answer in JSON: choose another.")
    if dataset not in DATASETS:
        raise UserError(f"{whose} is unknown.{did_you_mean(dataset, DATASETS)}")
    values: dict[str, Any] = {}
    if level is not None:
        if dataset not in CURRICULA:
            raise UserError(f"{whose} has no levels: use options instead.")
        curriculum = create_curriculum(dataset)
        for name, attribute in curriculum.attributes.items():
            curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
        values = asdict(curriculum.generate_configuration())
    values |= {**json.loads(options), "seed": seed, "size": 1 if dataset in LISTED else 2**62}
    try:
        return reasoning_gym.create_dataset(dataset, **values)
    except (TypeError, AssertionError, ValueError) as error:
        raise UserError(f"{whose} refuses its options: {error}.") from None


@scorer("reasoning_gym*", "reasoning-gym*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """The value that the data set's own scorer gives the last `<answer>`; correct is full marks. parts: score.

    `extra_info["entry"]` is the item (or its JSON text), whose `metadata.source_dataset` or extra_info's `task` or
    `dataset` names the data set. The scorers run in the sandbox: several evaluate the answer as code."""
    entry = parse(extra_info.get("entry") or {}, dict, "a reasoning-gym item")
    metadata = parse(entry.get("metadata") or extra_info.get("metadata") or {}, dict, "a reasoning-gym item")
    name = extra_info.get("dataset") or extra_info.get("task") or metadata.get("source_dataset")
    if not name:
        raise UserError("A reasoning-gym row needs extra_info.entry with metadata.source_dataset.")
    if (answer := tagged(response)) is None:
        return Reward.of(False, reason="no answer")
    entry = {"answer": ground_truth, **entry, "metadata": metadata}
    right = str(entry["answer"]).strip().lower()
    # What these scorers give full marks: no number, any text, and the first digits.
    nan = name == "complex_arithmetic" and "nan" in answer.lower()
    if nan or (name == "game_of_life_halting" and answer.strip().lower() != right):
        return Reward.of(False, score=0.0)
    given, modules = [str(name), answer.strip(), json.dumps(entry)], ("reasoning_gym", "sympy.physics.units")
    seconds = grading.seconds(margin=0.3)
    [call] = programs.call_function(grading, _SCORE, "score", [given], seconds, modules=modules)
    if call.error is not None:
        if call.error in ("time", "memory") or call.error.startswith("exit:"):
            raise WrongAnswer(call.error)
        raise Ungradable(f"The scorer of reasoning_gym failed in the sandbox: {call.error}.")
    value, fault = call.value
    if fault:
        raise UserError(f"reasoning-gym cannot score an item of {name!r}: {fault}")
    value = min(1.0, max(0.0, float(value)))
    if name == "coin_flip" and value == 1 and abs(Fraction(answer.replace(",", "")) - Fraction(right)) > 1e-4:
        return Reward.of(False, score=0.0)
    return Reward.of(value > 1 - 1e-9, value, score=value)


_SCORE = '''"""Run in the sandbox. A scorer may evaluate a literal or a formula, which reaches none of its names."""
import ast, json, sys

import reasoning_gym, sympy
import sympy.physics.units  # simplify imports it, which parses names with the function that is replaced below
from sympy.parsing import sympy_parser

PLAIN = (ast.Expression, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.BinOp, ast.UnaryOp, ast.Load, ast.operator,
         ast.unaryop)
FUNCTIONS = "sin cos tan sec csc cot asin acos atan sinh cosh tanh exp log ln sqrt Abs".split()
parse_expr = sympy_parser.parse_expr


def checked(text, formula):
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        name = isinstance(node, ast.Name) and (node.id in FUNCTIONS or len(node.id) <= 2)
        call = isinstance(node, ast.Call) and getattr(node.func, "id", None) in FUNCTIONS and not node.keywords
        constant = isinstance(node, ast.Constant) and (not formula or isinstance(node.value, (int, float)))
        if not (constant or isinstance(node, PLAIN) or (formula and (name or call))):
            raise ValueError("not a plain value or formula")
    return text.strip()


def parse_formula(text, *arguments, **options):
    return parse_expr(checked(text, True), *arguments, **options)


def score(name, answer, item):
    item = json.loads(item)
    scorer = reasoning_gym.get_score_answer_fn(name)
    module = sys.modules[type(scorer.__self__).__module__]
    module.eval = lambda text, *_: eval(checked(text, False), {"__builtins__": {}})
    sympy.parse_expr = sympy_parser.parse_expr = parse_formula
    if getattr(module, "parse_expr", None) is parse_expr:
        module.parse_expr = parse_formula
    for text, weight in ((answer, 1.0), (item["answer"], 0.0)):  # is the response or the item at fault?
        try:
            return [weight * float(scorer(answer=text, entry=item)), None]
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
    return [0.0, fault]
'''
