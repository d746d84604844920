"""The process that serves an application: where it listens, and how it ends."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from rlkit.errors import UserError
from rlkit.serving.app import API_KEY, create_app
from rlkit.serving.solver import Settings

# Longer than clients and proxies keep an idle connection (httpx 5 s, nginx 60 s): a server that closes it first, at
# the moment of the next request, resets that request.
KEEP_ALIVE = 75


class Server(uvicorn.Server):
    """uvicorn, which when told to stop takes no more connections; what runs has `grace` seconds, and is then answered
    with 503."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        solver = self.config.app.state.solver  # type: ignore[union-attr]
        asyncio.get_running_loop().call_later(solver.settings.grace, solver.stop)
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address, before anything slow. Raises UserError where it is taken or none of ours."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise UserError(
            f"--host {host} --port {port} cannot be listened on ({error.strerror}): take another."
        ) from None
    return bound


def serve(
    path: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: Settings | None = None,
    say: Callable[[str], Any] = print,
) -> None:
    """Serve a run's policy until Ctrl-C or SIGTERM. Running requests then have `settings.grace` seconds to finish, and
    those that have not are answered with 503.

    Raises:
        UserError: the policy cannot be opened, the address is taken, or a non-loopback host without an API key.
    """
    if host not in ("127.0.0.1", "localhost", "::1") and not os.environ.get(API_KEY):
        raise UserError(f"--host is {host!r}, open to others: set {API_KEY} first.")
    bound, settings = listen(host, port), settings or Settings()
    say(f"Loading {path} …")

    import torch

    from rlkit.samplers.torch import TorchSampler
    from rlkit.training.export import open_saved

    # One core is for requests: torch's threads wait for each other spinning, and would wait for them.
    torch.set_num_threads(max(1, torch.get_num_threads() - 1))
    saved = open_saved(path, "cuda" if torch.cuda.is_available() else "cpu")
    policy = saved.policy
    turn = settings.max_turn_length or saved.facts.get("max_turn_length") or None
    settings = settings.model_copy(update={"max_turn_length": turn})
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    config = uvicorn.Config(
        create_app(policy, saved.environments, sampler, settings),
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=round(settings.grace) + 5,  # for answers to reach slow clients
    )
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal that stopped it once more, after all is done: here that is a clean end.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    bound.listen()
    address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
    say(f"Serving {', '.join(sorted(saved.environments)) or 'any domain'} at {address}; see {address}/docs.")
    with contextlib.suppress(KeyboardInterrupt):
        Server(config).run([bound])
