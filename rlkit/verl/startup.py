"""How far verl's start is, told from its log: what a user sees while he waits, and what run.json keeps.

verl 0.9.1 starts some ten processes one after another, each of which imports torch, vLLM and verl: minutes,
whatever the model.
"""

import re
import time
from pathlib import Path

from rlkit.verl.tail import Tail

PHASES = {
    "starting Ray": rb"Started a local Ray instance|Connected to Ray cluster",
    "starting the trainer": rb"create worker group",
    "loading weights": rb"actor and ref model engine initialized",
    "starting the rollout engine": rb"LLMServerManager: ",
    "first answers": None,
}
"""The phases in order, and the line of verl's log that ends each; the first graded answer ends the last."""


class Startup:
    """Follows the log of one attempt from the start of its process.

    Attributes:
        seconds: of the phases that have ended. A phase whose line the log lacks is missing, its time in the next.
        total: seconds from the start to the first answer; None before it.
    """

    def __init__(self, log: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.total: float | None = None
        self._log, self._ahead = Tail(log), list(PHASES)
        self._began = self._since = time.monotonic()

    @property
    def phase(self) -> str:
        """What verl is doing; empty once it has answered."""
        return self._ahead[0] if self._ahead else ""

    @property
    def waited(self) -> float:
        """Seconds in this phase."""
        return time.monotonic() - self._since

    def look(self, answered: bool) -> list[str]:
        """Read on. The phases that have ended since the last call."""
        if not self._ahead:
            return []
        text = b"\n".join(self._log.lines())
        ended = [name for name in self._ahead if (line := PHASES[name]) and re.search(line, text)]
        if answered:
            ended.append(self._ahead[-1])
            self.total = time.monotonic() - self._began
        for name in ended:
            self.seconds[name], self._since = self.waited, time.monotonic()
            del self._ahead[: self._ahead.index(name) + 1]
        return ended
