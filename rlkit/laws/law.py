"""What a law is: a function of named columns whose keyword-only arguments are its parameters.

    @law("my_law", linear=("E", "A"), starts={"alpha": (0.2, 0.5, 1.0)})
    def my_law(N, *, E, A, alpha):  # the docstring has formula and paper
        return E + A * N**-alpha

Columns arrive as (n,) arrays and parameters as (B, 1), so the value is (B, n): one row a parameter vector. The engine
works in unbounded z: a parameter itself, ln(value - low) above a lower bound, or the logit between two bounds.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from rlkit.errors import UserError, did_you_mean
from rlkit.registry import Registry

Space = Literal["linear", "log", "loglog", "logit"]
Bounds = tuple[float, float]
Columns = Mapping[str, np.ndarray]
Start = Sequence[float] | np.ndarray | Callable[[Columns], Sequence[float] | np.ndarray]

laws = Registry("law", "rlkit.laws.forms", hint="A law is a function with the decorator rlkit.laws.law.")

POSITIVE: Bounds = (0.0, np.inf)
REAL: Bounds = (-np.inf, np.inf)
SHARE: Bounds = (0.0, 1.0)


def along(column: str, low: float = 1, high: float = 3, count: int = 8) -> Callable[[Columns], np.ndarray]:
    """Starts for a parameter in the units of `column`: geometric from low·min to high·max."""

    def values(columns: Columns) -> np.ndarray:
        x = columns[column]
        return np.geomspace(low * x[x > 0].min(), high * x.max(), count)

    return values


@dataclass(frozen=True)
class Law:
    """A functional form and what the engine needs to fit it.

    Attributes:
        function: (columns (n,), parameters (B, 1)) → (B, n).
        columns, parameters: argument names, positional and keyword-only.
        linear: parameters in which the value is linear; they are solved for. starts: values to try for the others.
        bounds: a range for each parameter; the default is positive. pinned: parameters held at a value.
        like: another law, whose best fits are the first starts of the parameters of the same names.
        returns: what the value is: y, ln y, ln(-ln y) or logit y. space: where residuals are taken by default.
        identified_by: (asymptote, parameter, column): unidentified when max(column) < 3·parameter.
        source: formula and paper; default the first paragraph of the function's docstring.
    """

    name: str
    function: Callable[..., np.ndarray]
    columns: tuple[str, ...]
    parameters: tuple[str, ...]
    linear: tuple[str, ...] = ()
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    starts: Mapping[str, Start] = field(default_factory=dict)
    like: str | None = None
    returns: Space = "linear"
    space: Space = "log"
    pinned: Mapping[str, float] = field(default_factory=dict)
    identified_by: tuple[str, str, str] | None = None
    source: str = ""

    @property
    def free(self) -> tuple[str, ...]:
        """Parameters that a fit estimates."""
        return tuple(p for p in self.parameters if p not in self.pinned)

    @cached_property
    def estimated(self) -> np.ndarray:
        """(p,) bool: the parameters that are free."""
        return np.array([p not in self.pinned for p in self.parameters])

    @cached_property
    def linearly(self) -> np.ndarray:
        """(p,) bool: the parameters in which the value is linear."""
        return np.array([p in self.linear for p in self.parameters])

    def limits(self, name: str) -> Bounds:
        return self.bounds.get(name, POSITIVE)

    def pin(self, **values: float) -> "Law":
        """The law with parameters held at known values, e.g. `laws["sigmoid"].pin(R0=0.08)`."""
        self.check(values)
        for name, value in values.items():
            low, high = self.limits(name)
            if not low <= value <= high:
                raise UserError(f"{name} of the law {self.name!r} is {value:g}: give a value from {low:g} to {high:g}.")
        return replace(self, pinned={**self.pinned, **values})

    def check(self, names: Iterable[str]) -> None:
        """Refuse names that are none of the law's parameters."""
        for name in (name for name in names if name not in self.parameters):
            near, known = did_you_mean(name, self.parameters), ", ".join(self.parameters)
            raise UserError(f"The law {self.name!r} has no parameter {name!r}.{near} It has {known}.")

    @cached_property
    def _ranges(self) -> tuple[np.ndarray, ...]:
        """(p,) lower and upper bounds, and which parameters have a lower one only, and which both."""
        low, high = np.array([self.limits(name) for name in self.parameters], dtype=float).T
        return low, high, np.isfinite(low) & np.isinf(high), np.isfinite(low) & np.isfinite(high)

    def to_z(self, values: np.ndarray) -> np.ndarray:
        """Natural parameters (…, p) to unbounded coordinates (…, p); values at a bound are moved inside."""
        z, (low, high, above, between) = np.array(values, dtype=float), self._ranges
        z[..., above] = np.log(np.maximum(z[..., above] - low[above], 1e-300))
        share = (z[..., between] - low[between]) / (high[between] - low[between])
        share = np.clip(share, 1e-9, 1 - 1e-9)
        z[..., between] = np.log(share / (1 - share))
        return z

    def from_z(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters (…, p) and their derivatives with respect to z (…, p)."""
        low, high, above, between = self._ranges
        with np.errstate(over="ignore", invalid="ignore"):  # a parameter on its way to infinity gets there
            grown = np.exp(z)
            values, slope = np.where(above, low + grown, z), np.where(above, grown, 1.0)
            if between.any():
                width, share = high - low, 1 / (1 + np.exp(-z))
                values = np.where(between, low + width * share, values)
                slope = np.where(between, width * share * (1 - share), slope)
        return values, slope

    def __call__(self, columns: Columns, values: np.ndarray) -> np.ndarray:
        """The function's value (B, n) at natural parameters (B, p)."""
        named = {name: values[:, j : j + 1] for j, name in enumerate(self.parameters)}
        with np.errstate(all="ignore"):  # a value that is not finite is refused by the search
            out = np.asarray(self.function(*(columns[c] for c in self.columns), **named), dtype=float)
        B, n = len(values), len(next(iter(columns.values())))
        if out.shape not in ((B, n), (B, 1), (1, n), (n,), (1,), ()):
            told = "write it with numpy operations that broadcast (B, 1) against (n,)"
            raise UserError(f"The law {self.name!r} returned shape {out.shape} for {B} × {n} values: {told}.")
        return out if out.shape == (B, n) else np.broadcast_to(out, (B, n))


def law(name: str, **options: Any) -> Callable[[Callable[..., np.ndarray]], Law]:
    """Decorator that registers a law; options are attributes of `Law`, a UserError where they name no parameter."""

    def build(function: Callable[..., np.ndarray]) -> Law:
        arguments = inspect.signature(function).parameters.values()
        columns = tuple(a.name for a in arguments if a.kind is a.POSITIONAL_OR_KEYWORD)
        parameters = tuple(a.name for a in arguments if a.kind is a.KEYWORD_ONLY)
        if not columns or not parameters:
            raise UserError(f"The law {name!r} needs columns (positional) and parameters (after a *).")
        told = (inspect.getdoc(function) or "").partition("\n\n")[0]
        made = Law(name, function, columns, parameters, **{"source": " ".join(told.split()), **options})
        made.check([*made.linear, *made.bounds, *made.starts])
        return laws.register(name)(made)

    return build


def resolve(chosen: str | Law) -> Law:
    """A law from its name; a Law passes through."""
    return chosen if isinstance(chosen, Law) else laws[chosen]
