"""Every case of tests/benchmarks/gpu.py runs, at sizes that a CPU does in a second; vLLM and TRL by `--dry` alone."""

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import gpu  # pyright: ignore[reportMissingImports]
import gpu_systems  # pyright: ignore[reportMissingImports]

HERE = [
    (name, system)
    for name, case in gpu.CASES.items()
    for system in case["systems"]
    if system in ("rlkit", "rlkit-torch", "torch")
]


@pytest.mark.parametrize(("name", "system"), HERE)
def test_the_case_runs(name, system, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_systems, "device", lambda: "cpu")
    monkeypatch.setattr(gpu_systems.tempfile, "gettempdir", lambda: str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = gpu.measure(name, system, dry=True)
    assert found["seconds"] > 0 and found["tokens_per_second"] > 0
    if name.startswith("step"):
        assert {"gen", "reward", "update_actor", "update_weights", "step"} <= set(found["phases"])


def test_the_filler_words_of_a_large_vocabulary_are_text_and_prompts_stay_bytes():
    tokenizer, plain = gpu_systems.filled_tokenizer(2000), gpu_systems.filled_tokenizer(262)
    assert len(tokenizer) == 2000
    assert tokenizer.decode([1000]) == "w1000" and gpu_systems.letters(tokenizer.decode([1000])) == 0.2
    assert tokenizer.encode("1+1=w") == plain.encode("1+1=w")
    assert tokenizer.eos_token_id == 2000 - 6 + 2


@pytest.mark.slow(reason="starts two processes that import torch")
def test_packed_runs_are_timed_together(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_systems, "device", lambda: "cpu")
    found = gpu.measure("pack-3m", "2", dry=True)
    assert found["steps_per_second"] >= 2 / found["seconds"] * 0.999  # of both: two runs' rates, added
