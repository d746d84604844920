"""Instructions that a program can check: IFEval (Zhou et al., arXiv 2311.07911) and IFBench (Pyatkin et al.,
arXiv 2507.02833).

A check is a function of the response and of the instruction's arguments, registered under the instruction's name.
"""

from collections.abc import Callable

from rlkit.domains import Registry

checks = Registry(
    "instruction", "rlkit.domains.instructions", hint="Register a check with @checks.register(name)."
)
Check = Callable[..., bool]
