"""`rlkit doctor`: what fits where, what would fit, and what a machine is told of itself."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.errors import UserError
from rlkit.sizing import devices, host, machine
from rlkit.sizing import fit as fitting
from rlkit.sizing.devices import DEVICES, device_named, from_smi
from rlkit.sizing.fit import fit
from rlkit.sizing.memory import Lengths
from rlkit.sizing.run import sampler_of
from rlkit.sizing.seconds import LAUNCH, SCHEDULER, seconds_of

LARGE = {"model.dtype": "bfloat16", "data.max_response_length": 512}


def test_seven_billion_weights_with_lora_fit_an_h100_and_whole_they_do_not():
    assert fit("qwen2.5-7b", LARGE | {"model.lora_rank": 32}, "h100").fits
    whole = fit("qwen2.5-7b", LARGE, "h100")
    assert not whole.fits and whole.changes
    assert whole.memory.held["weights"] == 4 * whole.shape.parameters  # float32 under bfloat16
    assert fit("qwen2.5-7b", LARGE | whole.changes, "h100").fits


@pytest.mark.parametrize(
    ("model", "device"), [("qwen2.5-1.5b", "a100-40gb"), ("qwen2.5-3b", "a100-40gb"), ("qwen2.5-7b", "l40s")]
)
def test_what_is_said_to_fit_does(model, device):
    before = fit(model, LARGE, device)
    assert not before.fits and before.changes
    assert "What would fit: " + next(iter(before.changes)) in before.summary()
    assert fit(model, LARGE | before.changes, device).fits


def test_a_model_that_nothing_makes_fit():
    found = fit("qwen2.5-32b", LARGE, "l4")
    assert found.changes is None and "Nor would it with LoRA" in found.summary()


def test_the_largest_micro_batch_fits_and_twice_as_much_does_not():
    run = LARGE | {"model.lora_rank": 32, "data.train_batch_size": 512}
    largest = fit("qwen2.5-1.5b", run, "a100-40gb").largest_micro_batch
    assert largest and fit("qwen2.5-1.5b", run | {"actor.micro_batch_tokens": largest}, "a100-40gb").fits
    assert not fit("qwen2.5-1.5b", run | {"actor.micro_batch_tokens": 2 * largest}, "a100-40gb").fits


def test_a_vllm_engine_takes_its_share_of_the_card_and_a_large_one_sleeps_during_the_update():
    lora = LARGE | {"model.lora_rank": 32, "evaluation.size": 2, "rollout.name": "vllm"}
    small = fit("qwen2.5-0.5b", lora | {"rollout.max_num_seqs": 64}, "h100").memory
    large = fit("qwen2.5-0.5b", lora | {"data.max_response_length": 16_384}, "h100").memory
    assert "vLLM" in small.held and "vLLM" not in small.rollout
    assert "vLLM" in large.rollout and "vLLM" not in large.held  # by its cache: the weights are the same
    told = fit("qwen2.5-0.5b", lora | {"rollout.gpu_memory_utilization": 0.5}, "h100")
    assert told.memory.rollout["vLLM"] == int(
        told.device.memory_gb * 1e9 / 2
    )  # beside what the trainer holds
    few, many = (fit("qwen2.5-0.5b", lora | {"rollout.n": n}, "h200").memory for n in (8, 16))
    sequence = (256 + 512) * 2 * 24 * 2 * 64 * 2  # is cached, and its next token is drawn
    assert many.rollout["vLLM"] - few.rollout["vLLM"] == 64 * 8 * (sequence + 18 * 151_936)


def test_a_torch_sampler_that_would_hold_much_of_the_card_makes_way_for_one_that_sleeps():
    lora = LARGE | {"model.lora_rank": 32}
    long = {"data.max_response_length": 2_048}
    for model, device, changes, name in (
        ("qwen2.5-1.5b", "h100", {}, "torch"), ("qwen2.5-1.5b", "a100-40gb", {}, "vllm"),
        ("qwen2.5-1.5b", "h200", long, "vllm"), ("qwen2.5-0.5b", "h200", long, "torch"),
        ("qwen2.5-1.5b", "h200", long | {"rollout.max_num_seqs": 512}, "torch"), ("qwen2.5-7b", "h200", {}, "vllm"),
    ):  # fmt: skip
        found = fit(model, lora | changes, device)
        assert sampler_of(found.config, found.shape, found.device, found.on_gpu)[0] == name


def test_a_critic_beside_lora_adds_an_adapter_and_a_whole_one_a_model():
    run = LARGE | {"model.lora_rank": 32, "algorithm.adv_estimator": "gae"}
    adapter = fit("qwen2.5-7b", run, "h100")
    whole = fit("qwen2.5-7b", run | {"critic.model.lora_rank": 0}, "h100")
    assert adapter.memory.held["critic"] < 1e9
    assert whole.memory.held["critic"] == pytest.approx(12 * whole.shape.parameters, rel=1e-3)
    assert adapter.fits and not whole.fits


def test_time_follows_bandwidth_speed_and_work():
    run = LARGE | {"model.lora_rank": 32, "actor.micro_batch_tokens": 32_768}
    h100, h200 = fit("qwen2.5-7b", run, "h100").step, fit("qwen2.5-7b", run, "h200").step
    assert h200.phases["rollout"] < h100.phases["rollout"]
    small = fit("qwen2.5-1.5b", run, "h100")
    assert 3 < h100.update_flops / small.step.update_flops < 8
    assert h100.phases["update"] > 3 * small.step.phases["update"]
    launched = fit("qwen2.5-1.5b", run | {"actor.micro_batch_tokens": 2_048}, "h100").step
    assert launched.phases["update"] > 2 * small.step.phases["update"]  # many small passes wait for Python
    minis = fit("qwen2.5-1.5b", run | {"actor.ppo_mini_batch_size": 1}, "h100").step
    assert minis.phases["update"] > 2 * small.step.phases["update"]  # and so do those of many optimizer steps
    longer = fit("qwen2.5-7b", run, "h100", (0, 256)).step
    assert longer.phases["rollout"] < 0.6 * h100.phases["rollout"]
    checkpointed = fit("qwen2.5-7b", run | {"model.enable_gradient_checkpointing": True}, "h100").step
    assert checkpointed.update_flops / h100.update_flops == pytest.approx(
        1.5, abs=0.02
    )  # LoRA: 2 + 1 of 2 forwards


def test_the_ladder_fits_a_cpu():
    found = fit("params/quickstart.yaml", {}, "cpu")
    assert found.fits and not found.on_gpu and "sampler: torch" in found.summary()


@pytest.mark.parametrize(("line", "name", "gib"), [
    ("NVIDIA H100 80GB HBM3, 81559 MiB", "h100", 79.6), ("NVIDIA A100-SXM4-40GB, 40960 MiB", "a100-40gb", 40.0),
    ("NVIDIA L4, 23034 MiB", "l4", 22.5), ("NVIDIA H100 NVL, 95830 MiB", "h100", 93.6),
])  # fmt: skip
def test_a_gpu_is_known_by_its_name_and_has_the_memory_that_it_says(line, name, gib):
    found = from_smi(line)
    assert found.flops_per_second == DEVICES[name].flops_per_second
    assert found.memory_gb * 1e9 / 2**30 == pytest.approx(gib, abs=0.1)


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="--device is 'h10'. Did you mean .h100"):
        device_named("h10")
    with pytest.raises(UserError, match="speed of 'Quadro P400' is not known"):
        from_smi("Quadro P400, 2048 MiB")
    with pytest.raises(UserError, match="model.path is 'qwen9', whose shape is not known"):
        fit("qwen9", {}, "h100")


def test_the_command_says_whether_it_fits_and_exits_so():
    run = CliRunner().invoke(app, ["doctor", "--fit", "qwen2.5-7b", "--device", "l4", "model.dtype=bfloat16"])
    assert run.exit_code == 1 and "Does not fit: " in run.output
    run = CliRunner().invoke(app, ["doctor", "--fit", "ladder-3m", "--device", "h100"])
    assert run.exit_code == 0 and "Fits: " in run.output
    assert CliRunner().invoke(app, ["doctor", "model.lora_rank=3"]).exit_code != 0


def facts(monkeypatch, smi: str | None, versions: dict[str, str]) -> dict[str, machine.Finding]:
    monkeypatch.setattr(machine, "output_of", lambda *_: smi)
    monkeypatch.setattr(machine, "version", versions.get)
    monkeypatch.setattr(machine, "cuda_problem", lambda: "")
    return {row.what: row for row in machine.findings()}


H100 = "NVIDIA H100 80GB HBM3, 81559, 4, 580.95"


def test_a_gpu_machine_is_told_what_is_missing(monkeypatch):
    found = facts(monkeypatch, H100, {"torch": "2.11.0+cpu", "verl": "0.9.1"})
    assert found["torch"].mend == found["sampler"].mend == found["verl"].mend == machine.GPU_EXTRA
    assert "ray and vllm" in found["verl"].follows and "580.95" in found["GPU"].found
    found = facts(monkeypatch, H100, {"torch": "2.11.0", "verl": "0.9.1", "ray": "2", "vllm": "0.24.0"})
    assert not any(found[what].mend for what in ("torch", "sampler", "verl", "GPU"))
    assert "vllm from 4B" in found["sampler"].follows


def test_a_card_that_another_process_fills_is_noticed(monkeypatch):
    found = facts(monkeypatch, H100.replace(", 4,", ", 70000,") + "\n" + H100, {"torch": "2.11.0"})
    assert (
        "68.4 used" in found["GPU"].found
        and "nvidia-smi" in found["GPU"].mend
        and "2 GPUs" in found["GPU"].follows
    )


def test_without_a_gpu_everything_is_said_to_be_as_it_must(monkeypatch):
    found = facts(monkeypatch, None, {"torch": "2.13.0+cpu", "verl": "0.9.1"})
    assert found["GPU"].found == "none" and not found["torch"].mend and not found["sampler"].mend


def test_the_verdict_says_what_a_larger_micro_batch_would_save():
    run = LARGE | {"model.lora_rank": 32}
    small = fit("qwen2.5-1.5b", run | {"actor.micro_batch_tokens": 8_192}, "h100")
    largest, words = small.largest_micro_batch, small.summary().splitlines()[-1]
    assert largest and largest > 8_192 and f"could be {largest:,}, with which a step would take" in words
    told = float(words.split("would take ")[1].split(" s")[0])
    best = fit("qwen2.5-1.5b", run | {"actor.micro_batch_tokens": largest}, "h100")
    assert told == pytest.approx(best.step.total, rel=0.01) and told < 0.8 * small.step.total
    assert "instead" not in best.summary().splitlines()[-1]


def test_a_pass_on_a_gpu_has_as_many_tokens_as_leave_a_part_of_it_free():
    def tokens(model: str, device: str, **changes) -> int:
        found = fit(model, LARGE | {"model.lora_rank": 32} | changes, device)
        peak = found.memory.update_bytes / found.device.memory_gb / 1e9
        assert device == "cpu" or peak < 0.75 or found.config.actor.tokens_a_pass == 8_192
        return found.config.actor.tokens_a_pass

    assert tokens("qwen2.5-0.5b", "h200") == 32_768 and tokens("qwen2.5-0.5b", "cpu") == 8_192
    assert tokens("qwen2.5-1.5b", "h100") == 16_384 and tokens("qwen2.5-7b", "a100-40gb") == 8_192
    assert tokens("qwen2.5-7b", "a100", **{"model.enable_gradient_checkpointing": True}) == 32_768
    assert tokens("qwen2.5-0.5b", "h200", **{"actor.micro_batch_tokens": 5_000}) == 5_000


def test_what_a_launch_takes_is_measured_by_passes_of_the_update():
    before = torch.get_rng_state()
    assert host.AMID < host.launch_seconds("cpu") < 5e-3
    assert torch.equal(torch.get_rng_state(), before)


def times_on(run: fitting.Fit, launch: float | None) -> dict[str, float]:
    return seconds_of(run.config, run.shape, run.device, run.on_gpu, run.lengths, launch).phases


def test_a_slow_host_slows_what_is_launched_and_scheduled_and_not_what_the_gpu_computes():
    typical, slow = LAUNCH["eager"], 2 * LAUNCH["eager"]
    lora = LARGE | {"model.lora_rank": 32}
    launched = fit("ladder-100m", lora | {"actor.micro_batch_tokens": 1_024}, "h200")
    before, after = times_on(launched, typical), times_on(launched, slow)
    assert before == times_on(launched, None) == launched.step.phases
    for phase, factor in {"update": 2, "host": 2, "rollout": 1, "sync": 1}.items():  # decoding is replayed
        assert after[phase] == pytest.approx(factor * before[phase])
    computed = fit("qwen2.5-7b", lora | {"actor.micro_batch_tokens": 32_768}, "h200")
    assert times_on(computed, typical)["update"] == times_on(computed, slow)["update"]
    scheduled = fit(
        "qwen2.5-0.5b", lora | {"rollout.name": "vllm"}, "h200"
    )  # the GPU has less to do than vLLM's host
    before, after = times_on(scheduled, typical), times_on(scheduled, slow)
    tokens = scheduled.config.data.train_batch_size * scheduled.config.rollout.n * scheduled.lengths.response
    assert before["rollout"] == pytest.approx(SCHEDULER["vllm"] * tokens)
    assert after["rollout"] == pytest.approx(2 * before["rollout"])
    replayed = fit("ladder-3m", {}, "h200")  # its passes are captured
    assert times_on(replayed, slow)["update"] == times_on(replayed, typical)["update"]


MODELS = {
    "step-0.5b": ("qwen2.5-0.5b", 32), "step-1.5b": ("qwen2.5-1.5b", 32), "step-3b": ("qwen2.5-3b", 32),
    "step-7b": ("qwen2.5-7b", 32), "step-smollm2": ("smollm2-135m-instruct", 16), "step-3m": ("ladder-3m", 0),
}  # fmt: skip
SLOW_HOST, OLDER = 4, (0, 1)  # calls: launches took half as long again; steps since became faster


def recorded() -> list[dict]:
    rows = json.loads((Path(__file__).parent / "benchmarks" / "results" / "gpu_h200.json").read_text())[
        "rows"
    ]
    return [r for r in rows if r["case"] in MODELS and "phases" in r and r["call"] not in (SLOW_HOST, *OLDER)]


@pytest.mark.parametrize("row", [
    pytest.param(r, id=f"{r['call']}-{r['case']}-{r['system']}-{i}") for i, r in enumerate(recorded())
])  # fmt: skip
def test_recorded_steps_are_predicted_to_15_percent(row):
    path, rank = MODELS[row["case"]]
    tokens = 128 if rank == 16 else 512 if rank else 32
    found = fit(path, {
        "model.dtype": "bfloat16" if rank else "float32", "model.lora_rank": rank,
        "model.enable_gradient_checkpointing": row["case"] == "step-7b", "data.max_response_length": tokens,
        "data.train_batch_size": 64, "rollout.n": 8, "rollout.name": row["sampler"].partition(":")[0],
        "actor.micro_batch_tokens": row["micro_batch_tokens"], "actor.use_torch_compile": row["compiled"],
    }, "h200")  # fmt: skip
    step = seconds_of(found.config, found.shape, found.device, True, Lengths(64, tokens))
    taken = row["phases"]["step"] - row["phases"]["reward"]
    assert step.total == pytest.approx(taken, rel=0.15)


@pytest.fixture
def an_h100_here(monkeypatch):
    found = devices.hardware() | {"gpus": ["NVIDIA H100 80GB HBM3, 81559 MiB"]}
    for module in (fitting, devices):
        monkeypatch.setattr(module, "hardware", lambda: found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_this_machines_gpu_is_predicted_with_its_hosts_launches_measured_once(monkeypatch, an_h100_here):
    measured = []
    monkeypatch.setattr(host, "launch_seconds", lambda: measured.append(2 * LAUNCH["eager"]) or measured[-1])
    run = LARGE | {"model.lora_rank": 32, "actor.micro_batch_tokens": 1_024}
    here, there = fit("ladder-100m", run), fit("ladder-100m", run, "h100")
    assert "launching a kernel takes 70 µs here (measured)" in here.summary()
    assert there.launch is None and "launching" not in there.summary()
    assert here.step.phases["update"] == pytest.approx(2 * there.step.phases["update"])
    smaller, theirs = here.step_of(2_048), there.step_of(2_048)
    assert smaller.phases["update"] == pytest.approx(2 * theirs.phases["update"])
    assert fit("ladder-100m", run | {"trainer.device": "cpu"}).launch is None
    assert len(measured) == 1


def test_a_gpu_that_cannot_be_used_now_is_predicted_with_a_typical_host(monkeypatch, an_h100_here):
    def fails():
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr(host, "launch_seconds", fails)
    here, there = fit("ladder-100m", LARGE), fit("ladder-100m", LARGE, "h100")
    assert here.launch is None and "launching" not in here.summary()
    assert here.step == there.step
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # the CPU's build of torch
    assert fit("ladder-100m", LARGE).launch is None
