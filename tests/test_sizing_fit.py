"""`rlkit doctor`: what fits where, what would fit, and what a machine is told of itself."""

import json
from pathlib import Path
from statistics import fmean

import pytest
import yaml
from cases import table
from typer.testing import CliRunner

from rlkit.cli import app
from rlkit.config import RunConfig, load
from rlkit.data import TaskStream, held_out
from rlkit.domains.math.tasks import Arithmetic
from rlkit.errors import UserError
from rlkit.models.loading import load_policy
from rlkit.models.prompts import ladder_length
from rlkit.params import override, validate
from rlkit.sizing import devices, doctor
from rlkit.sizing import estimate as estimating
from rlkit.sizing.devices import DEVICES, device_named
from rlkit.sizing.doctor import fit
from rlkit.sizing.estimate import estimate, expected_lengths
from rlkit.sizing.memory import total
from rlkit.studies.dry_run import run_plan
from rlkit.studies.file import load_one
from rlkit.studies.plan import make_plan
from rlkit.studies.status import duration


def has_gpu(monkeypatch, line: str = "NVIDIA H200, 143771 MiB"):
    facts = devices.hardware() | {"gpus": [line]}
    for module in (devices, estimating):
        monkeypatch.setattr(module, "hardware", lambda: facts)


LARGE = {"model.dtype": "bfloat16", "data.max_response_length": 512}


@pytest.mark.parametrize(("model", "device"), [("qwen2.5-7b", "h100"), ("qwen2.5-1.5b", "a100-40gb")])
def test_what_is_said_to_fit_does(model, device):
    before = fit(model, LARGE, device)
    assert not before.fits and before.changes
    assert before.memory["held"]["weights"] == 4 * before.plan.shape.parameters  # float32 under bfloat16
    assert "What would fit: " + next(iter(before.changes)) in before.summary()
    assert fit(model, LARGE | before.changes, device).fits
    assert fit("qwen2.5-7b", LARGE | {"model.lora_rank": 32}, "h100").fits
    found = fit("qwen2.5-32b", LARGE, "l4")
    assert found.changes is None and "Nor would it with LoRA" in found.summary()


def test_a_vllm_engine_takes_its_share_of_the_card_and_a_large_one_sleeps_during_the_update():
    lora = LARGE | {"model.lora_rank": 32, "evaluation.size": 2, "rollout.name": "vllm"}
    small = fit("qwen2.5-0.5b", lora | {"rollout.max_num_seqs": 64}, "h100").memory
    large = fit("qwen2.5-0.5b", lora | {"data.max_response_length": 16_384}, "h100").memory
    assert "vLLM" in small["held"] and "vLLM" not in small["rollout"]
    assert "vLLM" in large["rollout"] and "vLLM" not in large["held"]  # by its cache: the weights are alike
    told = fit("qwen2.5-0.5b", lora | {"rollout.gpu_memory_utilization": 0.5}, "h100")
    assert told.memory["rollout"]["vLLM"] == int(told.plan.device.memory_gb * 1e9 / 2)
    few, many = (fit("qwen2.5-0.5b", lora | {"rollout.n": n}, "h200").memory for n in (8, 16))
    sequence = (256 + 512) * 2 * 24 * 2 * 64 * 2  # is cached, and its next token is drawn
    assert many["rollout"]["vLLM"] - few["rollout"]["vLLM"] == 64 * 8 * (sequence + 18 * 151_936)


@pytest.mark.parametrize(*table("samplers_chosen"))
def test_a_torch_sampler_that_would_hold_much_of_the_card_makes_way_for_one_that_sleeps(model, device, changes, name):
    assert fit(model, LARGE | {"model.lora_rank": 32} | changes, device).plan.sampler == name


@pytest.mark.parametrize(*table("gpus_known"))
def test_a_gpu_is_known_by_its_name_and_has_the_memory_that_it_says(line, name, gib, monkeypatch):
    has_gpu(monkeypatch, line)
    found = device_named("here")
    assert found.flops_per_second == DEVICES[name].flops_per_second
    assert found.memory_gb * 1e9 / 2**30 == pytest.approx(gib, abs=0.1)


def test_unknown_names_are_refused(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match="config.json is empty or broken: copy the model's folder again"):
        fit(str(tmp_path), {}, "h100")
    with pytest.raises(UserError, match="--device is 'h10'. Did you mean .h100"):
        device_named("h10")
    with pytest.raises(UserError, match="model.path is 'qwen9', whose shape is not known"):
        fit("qwen9", {}, "h100")
    has_gpu(monkeypatch, "Quadro P400, 2048 MiB")
    with pytest.raises(UserError, match="speed of 'Quadro P400' is not known"):
        device_named("here")


@pytest.mark.parametrize(*table("doctor_says"))
def test_the_command_says_whether_it_fits_and_exits_so(what, device, status, said):
    run = CliRunner().invoke(app, ["doctor", "--fit", what[0], "--device", device, *what[1:]])
    assert run.exit_code == status and said in run.output
    assert CliRunner().invoke(app, ["doctor", "model.lora_rank=3"]).exit_code != 0


def facts(monkeypatch, smi: str | None, versions: dict[str, str]) -> dict[str, tuple[str, str, str]]:
    monkeypatch.setattr(devices, "output_of", lambda *_: smi)
    monkeypatch.setattr(doctor, "versions", lambda: versions)
    monkeypatch.setattr(doctor, "cuda_problem", lambda: "")
    return doctor.findings()


H100 = "NVIDIA H100 80GB HBM3, 81559, 4, 580.95"


def test_a_machine_is_told_what_it_lacks(monkeypatch):
    found = facts(monkeypatch, H100, {"torch": "2.11.0+cpu", "verl": "0.9.1"})
    assert found["sampler"][2] == found["verl"][2] == doctor.GPU_EXTRA in found["torch"][2]
    assert "ray and vllm" in found["verl"][1] and "580.95" in found["GPU"][0]
    found = facts(monkeypatch, H100, {"torch": "2.11.0", "verl": "0.9.1", "ray": "2", "vllm": "0.24.0"})
    assert not any(found[what][2] for what in ("torch", "sampler", "verl", "GPU"))
    assert "vllm from 4B" in found["sampler"][1]
    busy = facts(monkeypatch, H100.replace(", 4,", ", 70000,") + "\n" + H100, {"torch": "2.11.0"})["GPU"]
    assert "68.4 used" in busy[0] and "nvidia-smi" in busy[2] and "2 GPUs" in busy[1]
    shared = facts(monkeypatch, "NVIDIA GB10, [N/A], [N/A], 580.95", {"torch": "2.11.0"})["GPU"]
    assert shared[0].startswith("NVIDIA GB10") and not shared[2]
    found = facts(monkeypatch, None, {"torch": "2.13.0+cpu", "verl": "0.9.1"})
    assert found["GPU"][0] == "none" and not found["torch"][2] and not found["sampler"][2]


@pytest.mark.parametrize(*table("passes_halved"))
def test_passes_that_are_predicted_not_to_fit_are_halved_as_the_trainer_halves_them(model, device, changes, tokens):
    plan = fit(model, LARGE | {"model.lora_rank": 32} | changes, device).plan
    assert plan.config.actor.micro_batch_tokens in tokens


MODELS = {
    "step-0.5b": ("qwen2.5-0.5b", 32), "step-1.5b": ("qwen2.5-1.5b", 32), "step-3b": ("qwen2.5-3b", 32),
    "step-7b": ("qwen2.5-7b", 32), "step-smollm2": ("smollm2-135m-instruct", 16), "step-3m": ("ladder-3m", 0),
}  # fmt: skip
SLOW_HOST, OLDER = 4, (0, 1)  # calls: launches took half as long again; steps since became faster


def recorded() -> list[dict]:
    file = Path(__file__).parent / "benchmarks" / "results" / "gpu_h200.json"
    rows = [r for r in json.loads(file.read_text())["rows"] if r["case"] in MODELS and "phases" in r]
    return [r for r in rows if r["call"] not in (SLOW_HOST, *OLDER)]


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
    }, "h200", (64, tokens))  # fmt: skip
    taken = row["phases"]["step"] - row["phases"]["reward"]
    assert found.estimate.step - found.estimate.phases["grading"] == pytest.approx(taken, rel=0.15)


@pytest.mark.parametrize(*table("real_runs_measured"))
def test_runs_of_real_models_are_predicted_to_30_percent_and_in_one_number(path, step, whole):
    """Seconds of a step and of 60 with four evaluations of 720 answers, with LoRA 32 on an H200."""
    found = fit(path, {
        "model.dtype": "bfloat16", "model.lora_rank": 32, "data.train_batch_size": 64, "rollout.n": 8,
        "data.train": [{"kind": "math_problems"}, {"kind": "tables"}, {"kind": "programs"}],
        "data.max_prompt_length": 512, "data.max_response_length": 512, "evaluation.size": 360, "evaluation.n": 2,
        "trainer.total_training_steps": 60, "trainer.test_freq": 20,
    }, "h200")  # fmt: skip
    assert found.estimate.step == pytest.approx(step, rel=0.3)
    assert found.estimate.seconds == pytest.approx(whole, rel=0.3)
    assert f"{found.estimate.step:.3g}" in found.summary()  # what the whole is made of


def test_a_dry_run_its_plan_and_the_doctor_predict_the_same_for_the_device_that_trains(monkeypatch, tmp_path):
    has_gpu(monkeypatch)
    config = load("params/smollm2_gpu.yaml", {})
    cost, there = estimate(config), fit("params/smollm2_gpu.yaml", {}, "h200")
    assert cost is not None and cost.seconds == there.estimate.seconds
    assert run_plan(config, tmp_path).count(duration(cost.seconds)) == 1
    on_cpu = estimate(load("params/smollm2_gpu.yaml", {"trainer.device": "cpu"}))
    assert on_cpu is not None and on_cpu.seconds > 20 * cost.seconds


def test_a_dry_run_on_verl_says_whether_it_fits_the_cards_that_are_here(monkeypatch, tmp_path):
    has_gpu(monkeypatch)
    monkeypatch.setattr(devices, "output_of", lambda *_: "NVIDIA H200, 143771, 4, 580.95")
    words = ["run", "params/verl_real.yaml", "trainer.n_gpus_per_node=2", "--dry-run"]
    said = CliRunner().invoke(app, [*words, "--root", str(tmp_path)]).stdout.splitlines()
    there = fit("params/verl_real.yaml", {"trainer.n_gpus_per_node": 2}, "h200")
    assert said[-2] == there.verdict() and said[-2].startswith("Fits: ")
    assert "-m verl.trainer.main_ppo --config-path" in said[-1]


def test_what_is_left_follows_the_steps_that_were_made(tmp_path):
    config = load("params/train.yaml", {"trainer.total_training_steps": 100, "trainer.test_freq": 0})
    folder = tmp_path / config.study / "runs" / config.id
    cost = estimate(config)
    assert cost is not None and cost.left(100, 7.0) == cost.start
    between = cost.left(40, 7.0) - cost.left(90, 7.0)
    assert between == pytest.approx(50 * 7.0 + cost.evaluation)  # of two evaluations
    folder.mkdir(parents=True)
    rows = [json.dumps({"step": i, "time": 1000.0 + 90 * i}) for i in range(5)]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    assert "2.5 h here: 90 s per step (measured)" in run_plan(config, tmp_path)


def test_ladder_answers_are_as_long_as_worked_ones_and_prompts_as_the_tokenizer_has_them():
    config = load("params/train.yaml", {})
    (prompt, response, longest), policy = expected_lengths(config), load_policy(config.model)
    tasks = TaskStream(config, held_out(config)).batch(1)
    prompts = [len(policy.encode_all([task.prompt])[0]) for task in tasks]
    assert prompt == round(sum(prompts) / len(prompts))
    assert 1 < response < longest == config.data.max_response_length
    random = load("params/train.yaml", {"model.warm_start.kind": "none"})
    assert expected_lengths(random)[1] == config.data.max_response_length


@pytest.mark.parametrize(("name", "gib"), [("1.5b", 76), ("7b", 113), ("14b", 131)])
def test_reasoning_models_with_long_responses_fit_one_h200_as_their_files_say(name, gib):
    path = f"params/r1_distill_{name}_gpu.yaml"
    found, words = fit(path, {}, "h200"), Path(path).read_text()
    assert found.fits and total(found.memory) / 2**30 == pytest.approx(gib, rel=0.02)
    assert f"{gib} GiB" in words and f"{found.estimate.seconds / 3600:.2g} h" in words


def test_all_weights_of_seven_billion_fit_one_h200_with_their_moments_on_the_host():
    here = fit("params/r1_distill_7b_gpu.yaml", {"actor.optimizer_offload": False}, "h200")
    away = fit("params/r1_distill_7b_gpu.yaml", {}, "h200")
    assert away.fits and not here.fits
    assert "optimizer" in here.memory["held"] and "optimizer" not in away.memory["held"]
    assert away.estimate.phases["update"] > here.estimate.phases["update"]  # 61 GB there and back


SCALE = "params/scale_32b.yaml"


def on_verl(gpus: int, **changes):
    changes = {"trainer.nnodes": gpus // 8} | {key.replace("__", "."): v for key, v in changes.items()}
    return fit(SCALE, changes, "h100", (512, 4096))


def test_a_32b_model_on_verl_needs_more_than_eight_gpus_of_80_gb():
    assert [on_verl(gpus).fits for gpus in (8, 16, 32)] == [False, True, True]
    assert on_verl(8, model__lora_rank=32).fits
    assert on_verl(8).changes == {"model.lora_rank": 32} and "verl on 8 × h100" in on_verl(8).summary()
    with pytest.raises(UserError, match="--device is the CPU, but trainer.backend verl trains on GPUs"):
        fit(SCALE, {}, "cpu")


def test_what_trains_is_sharded_over_all_gpus_and_the_sampler_over_a_few():
    eight, sixteen = on_verl(8), on_verl(16)
    parameters = eight.plan.shape.parameters
    for gpus, found in ((8, eight.memory), (16, sixteen.memory)):
        assert found["held"] == {"weights": 4 * parameters // gpus, "optimizer": 8 * parameters // gpus}
        assert found["update"]["gradients"] == 4 * parameters // gpus
    assert eight.memory["update"]["activations"] == sixteen.memory["update"]["activations"]
    whole = on_verl(8, rollout__tensor_model_parallel_size=1, rollout__gpu_memory_utilization=0.1)
    shared = on_verl(8, rollout__gpu_memory_utilization=0.1)
    assert whole.memory["rollout"]["vLLM"] - shared.memory["rollout"]["vLLM"] > 0.7 * 2 * parameters
    assert eight.estimate.phases["update"] == pytest.approx(2 * sixteen.estimate.phases["update"], rel=0.01)
    fewer = eight.estimate.phases["rollout"] / sixteen.estimate.phases["rollout"]
    assert 1 < fewer <= 2  # weights are read for fewer answers


@pytest.mark.parametrize(*table("verl_measured"))
def test_steps_and_memory_of_verl_are_predicted_to_30_and_40_percent(gpus, changes, lengths, phases, step, update):
    """Tokens of prompts and answers; seconds of a step and its phases, GiB of the update, on H200s (docs/scale.md)."""
    changes = {"trainer.n_gpus_per_node": gpus, **changes}
    found = estimate(load_one("params/verl_real.yaml", changes), "h200", (*lengths, 512))
    assert found is not None and found.step == pytest.approx(step, rel=0.2)
    assert {name: found.phases[name] for name in phases} == pytest.approx(phases, rel=0.3)
    if update:
        memory = fit("params/verl_real.yaml", changes, "h200", tuple(lengths)).memory
        held, peak = (sum(memory[part].values()) / 2**30 for part in ("held", "update"))
        assert held + peak == pytest.approx(update, rel=0.4)


def test_a_warm_start_costs_the_same_whether_a_critic_will_follow():
    taken = [
        estimating.estimate_warm_start(load("params/train.yaml", {"algorithm.adv_estimator": name}), "h100")
        for name in ("grpo", "gae")
    ]
    assert taken[0] is not None and taken[0] == taken[1]


@pytest.fixture
def made(monkeypatch) -> list[int]:
    """The indices of all tasks of arithmetic that are made."""
    indices, task = list[int](), Arithmetic.task
    monkeypatch.setattr(Arithmetic, "task", lambda self, i: (indices.append(i), task(self, i))[1])
    return indices


SPLITS = """
run:
  data: {train: [{kind: arithmetic, digits: 4}], train_batch_size: 8, max_prompt_length: 48, max_response_length: 12}
  trainer: {total_training_steps: 400}
  evaluation: {size: 10}
variants:
  whole: {}
  short: {trainer.total_training_steps: 200}
  large: {model.path: ladder-300k, actor.optim.lr: 1e-4}
  long: {data.max_prompt_length: 64}
seeds: [0, 1]
"""


def test_prompts_are_made_once_for_all_runs_of_a_study(tmp_path, made):
    (path := tmp_path / "splits.yaml").write_text(SPLITS)
    make_plan(path, {}, tmp_path)
    assert 3_200 < len(made) < 3_400
    content = yaml.safe_load(SPLITS)["run"]
    config = validate(RunConfig, override(content, {"data.max_prompt_length": 12}))
    with pytest.raises(UserError, match="is 12, but 2,... of 3,200 arithmetic prompts are longer"):
        TaskStream(config, []).check_prompts([])


@pytest.mark.parametrize(*table("mixtures_measured"))
def test_lengths_are_those_of_the_mixture_without_all_its_tasks(made, train):
    data = {"train": [{"kind": "arithmetic", "digits": 4}], "train_batch_size": 50, **train}
    config = validate(RunConfig, {"data": data, "evaluation": {"size": 10}})
    found = expected_lengths(config)
    assert len(made) == 64
    tasks = TaskStream(config, held_out(config)).batch(1)
    answers = [len(task.worked_answer.encode()) + 1 for task in tasks]
    assert found[:2] == pytest.approx((fmean(ladder_length(task.prompt) for task in tasks), fmean(answers)), rel=0.1)


def test_greedy_answers_and_passes_that_estimators_ask_for_are_predicted():
    def of(**algorithm):
        sizes = {"rollout": {"n": 2}, "evaluation": {"size": 1, "n": 1}, "algorithm": algorithm}
        found = estimate(validate(RunConfig, sizes), "h100")
        assert found is not None
        return found

    plain, remax, optimal = of(), of(adv_estimator="remax"), of(adv_estimator="optimal_token_baseline")
    assert remax.phases["grading"] == pytest.approx(1.5 * plain.phases["grading"])
    assert remax.flops - remax.steps * remax.update_flops > 1.2 * (plain.flops - plain.steps * plain.update_flops)
    assert "log-probs" not in plain.phases and optimal.phases["log-probs"] > 0
