"""Load on `rlkit serve`: many clients at once, each posting one new equation after another.

    python tests/benchmarks/serving.py MODEL_OR_RUN [clients] [seconds]

Prints statuses, latencies, the server's CPU seconds and its memory at the start, after each third and at the end: it is
flat when the last third adds little. The last line is JSON.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import numpy as np
import psutil

from rlkit.environments.base import Problem
from rlkit.environments.mathematics import Mathematics


def start(path: str) -> tuple[subprocess.Popen, str]:
    """A server of its own process on a free port, ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "rlkit", "serve", path, "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            if httpx.get(f"{url}/healthz").status_code == 200:
                return process, url
        except httpx.TransportError:
            time.sleep(0.2)
    raise SystemExit("The server does not start.")


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time so far."""
    times = process.cpu_times()
    return times.user + times.system


async def load(url: str, clients: int, seconds: float, problems: Iterator[Problem]) -> tuple[Counter, list[float]]:
    """What `clients` met in `seconds`: statuses (or the name of a transport error) and seconds of answers."""
    statuses, times = Counter(), []
    end = time.perf_counter() + seconds

    async def one(client: httpx.AsyncClient) -> None:
        while time.perf_counter() < end:
            body = {"domain": "mathematics", "problem": next(problems)}
            began = time.perf_counter()
            try:
                answer = await client.post(f"{url}/solve", json=body)
            except httpx.HTTPError as error:
                statuses[type(error).__name__] += 1
                continue
            statuses[answer.status_code] += 1
            if answer.status_code == 200:
                times.append(time.perf_counter() - began)
            else:
                await asyncio.sleep(float(answer.headers.get("retry-after", 0)))

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        await asyncio.gather(*(one(client) for _ in range(clients)))
    return statuses, times


def main(path: str, clients: int = 200, seconds: float = 60.0) -> None:
    process, url = start(path)
    server = psutil.Process(process.pid)
    problems = iter(Mathematics(families=("linear", "two_sided")).problems("train", 20_000))
    statuses, times = Counter(), []
    try:
        asyncio.run(load(url, clients, min(seconds, 5), problems))  # warm
        memory, cpu, began = [server.memory_info().rss], cpu_seconds(server), time.perf_counter()
        for _ in range(3):
            met, took = asyncio.run(load(url, clients, seconds / 3, problems))
            statuses, times = statuses + met, times + took
            memory.append(server.memory_info().rss)
        cpu, wall = cpu_seconds(server) - cpu, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(60)
    result = {
        "clients": clients,
        "seconds": wall,
        "statuses": {str(k): v for k, v in statuses.items()},
        "solved_per_second": len(times) / wall,
        "solved_per_cpu_second": len(times) / cpu,
        "p50": float(np.quantile(times, 0.5)) if times else None,
        "p99": float(np.quantile(times, 0.99)) if times else None,
        "memory_mb": [round(m / 1e6, 1) for m in memory],
        "exit_status": process.returncode,
    }
    for name, value in result.items():
        print(f"{name:20} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
