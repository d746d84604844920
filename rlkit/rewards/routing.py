"""From a row's data_source to the scorer that grades it.

Scorers register exact names or shell patterns ("math__*"); an exact name wins over a pattern, a longer
pattern over a shorter one.
"""

from fnmatch import fnmatchcase
from functools import lru_cache

from rlkit.domains import Scorer, guru_scorers, scorers
from rlkit.errors import UserError, did_you_mean
from rlkit.registry import Registry


@lru_cache
def resolve(data_source: str, mode: str = "strict") -> Scorer:
    """The scorer of a data_source.

    In guru mode, a source that Reasoning360 has no scorer for is graded by the strict one.

    Raises:
        UserError: no scorer is registered for it; the message names the nearest known ones.
    """
    found = (mode == "guru" and _match(guru_scorers, data_source)) or _match(scorers, data_source)
    if not found:
        names = scorers.names()
        raise UserError(
            f"No scorer is known for the data_source {data_source!r}.{did_you_mean(data_source, names)} "
            f"Known: {', '.join(names)}. {scorers.hint}"
        )
    return found


def _match(registry: Registry, name: str) -> Scorer | None:
    if name in registry:
        return registry[name]
    patterns = [p for p in registry if "*" in p and fnmatchcase(name, p)]
    return registry[max(patterns, key=len)] if patterns else None
