"""Attention of a new token on the cache of its prompt and its own."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from rlkit.samplers import cache as module
from rlkit.samplers.cache import decode_attention, fastest_attention

KERNEL = """
import sys, torch
from rlkit.samplers.decode_kernel import attend
case = torch.load(sys.argv[1])
torch.save((attend(**case), case["own"]), sys.argv[1])
"""


def case(heads: int, kv: int, d: int, step: int) -> dict[str, torch.Tensor]:
    """Five rows, the last of which is idle, of nine sequences of three prompts."""
    draw = torch.Generator().manual_seed(step)
    return {
        "qkv": torch.randn(5, heads + 2 * kv, d, generator=draw),
        "prompts": torch.randn(2, 3, kv, 70, d, generator=draw),
        "own": torch.randn(2, 10, kv, 80, d, generator=draw),
        "owner": torch.tensor([0, 3, 5, 8, 9]),
        "prompt": torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 0]),
        "lengths": torch.tensor([70, 3, 65]),
        "step": torch.tensor([step]),
    }


SHAPES = [(14, 2, 64, 0), (6, 6, 32, 1), (2, 2, 24, 64), (3, 1, 40, 79)]


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which comes with torch for CUDA")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_of_gpus_computes_the_same(shape, tmp_path):
    """Run by Triton's interpreter, which must be asked for before the kernel is loaded: in a process of its own."""
    given, file = case(*shape), tmp_path / "case.pt"
    torch.save(given, file)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", KERNEL, str(file)], env=environment, check=True)
    out, own = torch.load(file)
    expected = decode_attention(**given)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(own, given["own"])


def test_a_gpu_without_a_compiler_decodes_without_the_kernel_and_says_so(monkeypatch):
    monkeypatch.setattr(module, "missing_compiler", lambda: "a C compiler")
    with pytest.warns(UserWarning, match="slower .* lacks a C compiler"):
        assert fastest_attention(torch.device("cuda")) is decode_attention
    assert fastest_attention(torch.device("cpu")) is decode_attention
