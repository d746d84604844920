"""Joining a Ray cluster."""

import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from rlkit.errors import UserError


def connect(address: str) -> Any:
    """Ray, connected to a cluster. Raises UserError when none answers."""
    use_token()
    import ray

    if not ray.is_initialized():
        try:
            knock(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            reason, fix = str(error).strip().splitlines()[0], "--option address=ray://HOST:10001"
            sentence = f"({reason}): start one (ray start --head), or give {fix}."
            raise UserError(f"No Ray cluster answers at {address!r} {sentence}") from None
    return ray


def use_token() -> None:
    """Show the token of this machine to a cluster that is joined, unless RAY_AUTH_MODE says otherwise.

    Ray 2.60 leaves a token behind with the first cluster of its own. From then on `ray start` asks for it, but
    joining a cluster does not show it. A cluster without tokens ignores it.
    """
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if "RAY_AUTH_MODE" in os.environ or not (os.environ.get("RAY_AUTH_TOKEN") or path.exists()):
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    if "ray" in sys.modules:  # which has read its settings already
        from ray._raylet import Config  # pyright: ignore[reportAttributeAccessIssue]  # compiled

        Config.initialize("")


def knock(address: str) -> None:
    """Raise OSError at once where nothing listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()
