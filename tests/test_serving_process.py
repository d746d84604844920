"""A server in a process of its own, over real connections: requests that are bad, clients that leave, and its end."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest
from cases import DATA
from waiting import wait_for

from rlkit.errors import UserError
from rlkit.serving.http import listen

SERVER = (DATA / "slow_server.txt").read_text()
HEADERS = {"content-type": "application/json"}


def problem(a: int) -> dict[str, Any]:
    return {"domain": "mathematics", "problem": f"{a + 2}x + 7 = 16"}


@contextmanager
def running(pause: float = 0.0, **limits):
    """(process, address) of a server that answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(pause), str(port), repr(limits)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "Loading ladder-30k …\n"
        assert f"at http://127.0.0.1:{port}" in process.stdout.readline()
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen, url: str, within: float) -> None:
    """Wait until the process has ended by itself with status 0 and its port is free."""
    _, errors = process.communicate(timeout=within)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    listen("127.0.0.1", int(url.rpartition(":")[2])).close()


def post(url: str, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection on which the request has been sent and nothing read."""
    host, port = url.removeprefix("http://").split(":")
    connection, raw = socket.create_connection((host, int(port))), json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
    return connection


def active(url: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("rlkit_active_episodes ")).split()[1])


def refuses(url: str) -> bool:
    """Whether it no longer takes new connections."""
    try:
        post(url, "/healthz", {}).close()
    except OSError:
        return True
    return False


def test_bad_requests_disturb_nobody_and_told_to_stop_it_finishes_what_runs():
    bodies: list[tuple[Any, int]] = [
        ("x" * 20_000_000, 413), ("[" * 30_000, 400), (b"\xff\xfe", 422), ("", 422),
        ('{"domain": "gymnasium", "problem": {"seed": -1}}', 422),
    ]  # fmt: skip

    async def go(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, timeout=60, headers=HEADERS) as client:
            good = [client.post("/solve", content=json.dumps(problem(i))) for i in range(5)]
            return await asyncio.gather(*good, *(client.post("/solve", content=body) for body, _ in bodies))

    with running(0.1) as (process, url):
        answers = asyncio.run(go(url))
        assert [a.status_code for a in answers] == [200] * 5 + [status for _, status in bodies]
        assert all(isinstance(a.json()["detail"], str) for a in answers[5:])
        left, plain = post(url, "/solve", problem(7)), post(url, "/solve", problem(8))
        wait_for(lambda: active(url) == 2)
        left.close()  # whose episode goes on for others
        with httpx.Client(base_url=url) as client:
            client.get("/healthz")
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: refuses(url))
            with pytest.raises(httpx.TransportError):
                client.post("/solve", json=problem(9))  # on a connection that was open
        plain.settimeout(30)
        answered = b"".join(iter(lambda: plain.recv(65536), b""))  # until the server closes
        assert answered.startswith(b"HTTP/1.1 200 OK") and b'"total_reward"' in answered
        ended(process, url, 30)


def test_200_clients_get_200_or_429_and_memory_stays_flat():
    async def crowd(url: str) -> set[int]:
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=200)) as client:
            body = {"domain": "line_walk", "problem": {"goal": 3}}
            asked = (client.post("/solve", json=body) for _ in range(200))
            return {answer.status_code for answer in await asyncio.gather(*asked)}

    with running(0.05, max_concurrent=2, timeout=16.0, context=500) as (process, url):
        statuses, memory = [], []
        for _ in range(2):
            statuses.append(asyncio.run(crowd(url)))
            memory.append(psutil.Process(process.pid).memory_info().rss)
        assert statuses == [{200, 429}] * 2
        assert memory[1] - memory[0] < 20e6 and active(url) == 0


def test_an_address_that_is_taken_or_none_is_one_sentence():
    for port in (-1, 99_999):
        with pytest.raises(UserError, match=f"--port is {port}: give one of 1 to 65535"):
            listen("127.0.0.1", port)
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(UserError, match=r"--host 127.0.0.1 --port \d+ cannot be listened on"):
            listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UserError, match="nowhere.invalid"):
        listen("nowhere.invalid", 1)
