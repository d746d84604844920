"""RunConfig on verl: every key has a place, verl itself accepts what comes out, the rest is refused by name."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from cases import cases
from hydra import compose as compose_files
from hydra import initialize_config_dir
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from typer.testing import CliRunner

from rlkit.backends import train
from rlkit.cli import app
from rlkit.config import Optimizer, RunConfig, load
from rlkit.errors import UserError
from rlkit.params import field_paths, read_yaml
from rlkit.training.optimizer import schedule
from rlkit.verl import backend
from rlkit.verl.checks import NEVER, ONLY, check
from rlkit.verl.config import EXCEPTIONS, To, compose, rule_of
from rlkit.verl.processes import LOCAL_CPUS, Files, environment

PARAMS = sorted(
    path
    for path in Path("params").glob("*.yaml")
    if isinstance((content := read_yaml(path)).get("run", content).get("data"), dict)
    and not path.stem.startswith("scalerl")  # filters groups or drops solved rows, which is refused below
)
FILES = Files(Path("/run/verl"), "/model", Path("/run/verl/attempt-1"))
ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
VERL = {"backend": "verl"}


def on_verl(**sections: Any) -> RunConfig:
    return RunConfig.model_validate({**sections, "trainer": {**VERL, **sections.get("trainer", {})}})


def composed(config: RunConfig) -> Any:
    check(config)
    return OmegaConf.create(compose(config, FILES))


def test_every_key_has_a_place():
    """Where no exception says otherwise, it is verl's key of the same name."""
    verl = OmegaConf.create(compose(on_verl(), FILES))
    paths = field_paths(RunConfig)
    derived = [
        key
        for path in paths
        if not any(q.startswith(f"{path}.") for q in paths) and isinstance(rule := rule_of(path), To)
        for key in rule.keys
        if path not in EXCEPTIONS
    ]  # fmt: skip
    missing = object()
    assert [key for key in derived if OmegaConf.select(verl, key, default=missing) is missing] == []
    assert len(derived) > 40
    listed = {*EXCEPTIONS, *ONLY, *NEVER}
    assert listed <= set(paths)  # no exception for a key that is gone


@pytest.mark.parametrize("path", PARAMS, ids=lambda p: p.stem)
def test_verl_accepts_every_params_file(path):
    config = load(path, {"trainer.backend": "verl", "trainer.tf32": False})  # for which verl has no key
    found = composed(config)
    assert found.data.train_batch_size == config.data.train_batch_size
    assert found.actor_rollout_ref.rollout.n == config.rollout.n
    assert found.trainer.total_training_steps == config.trainer.total_training_steps
    assert found.data.shuffle is False
    assert found.reward.custom_reward_function.reward_kwargs.config == config.reward.model_dump(mode="json")


@pytest.mark.parametrize(("about", "sections", "wanted"), cases("verl_settings"))
def test_keys_become_verl_s(about, sections, wanted):
    """`sections` of a RunConfig give verl's keys these values; None is a key that verl has no value for."""
    verl = composed(on_verl(**sections))
    for key, value in wanted.items():
        found, number = OmegaConf.select(verl, key), isinstance(value, float)
        assert found == (pytest.approx(value) if number else value), about


def test_verl_s_names_of_precisions_are_torch_s():
    from verl.utils.torch_dtypes import PrecisionType

    names = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    assert {name: PrecisionType.to_dtype(name) for name in names} == names


def test_a_run_starts_a_ray_of_its_own_or_joins_the_one_that_is_named(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    own = composed(on_verl()).ray_kwargs.ray_init
    assert (own.address, own.num_cpus) == ("local", LOCAL_CPUS)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    joined = composed(on_verl()).ray_kwargs.ray_init  # Ray refuses num_cpus for a cluster that runs already
    assert joined.num_cpus is None and "address" not in joined
    metrics = joined.runtime_env.env_vars["VERL_FILE_LOGGER_PATH"]  # its workers do not have our environment
    assert metrics == "/run/verl/attempt-1/metrics.jsonl"


def test_an_adapter_of_all_linear_layers_names_them_to_verl():
    """Handed all-linear, verl gives vLLM an adapter without layers."""
    found = composed(on_verl(model={"lora_rank": 4})).actor_rollout_ref.model.target_modules
    adapted = get_peft_model(tiny.model(), LoraConfig(r=4, target_modules="all-linear"))
    named = {n.rpartition(".")[2] for n, module in adapted.named_modules() if hasattr(module, "base_layer")}
    assert set(found) == named


@pytest.mark.parametrize("warmup", [0, 1, 3])
@pytest.mark.parametrize("kind", ["constant", "cosine"])
def test_verl_s_learning_rate_is_the_local_one_at_every_step(kind, warmup):
    from verl.utils.torch_functional import get_cosine_schedule_with_warmup

    ours = Optimizer(lr=1.0, lr_warmup_steps=warmup, lr_scheduler_type=kind, min_lr_ratio=0.1)
    found = composed(on_verl(actor={"optim": ours.model_dump()})).actor_rollout_ref.actor.optim
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=found.lr)
    theirs = get_cosine_schedule_with_warmup(
        optimizer, found.lr_warmup_steps, 10, found.min_lr_ratio, found.num_cycles,
        zero_indexed_step=found.zero_indexed_step,
    )  # fmt: skip
    for step in range(1, 11):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(schedule(ours, step, 10), abs=1e-9)
        optimizer.step()
        theirs.step()


def test_key_heads_may_be_fewer_than_the_gpus_that_share_a_model():
    few = {"model": {"path": "qwen2.5-1.5b"}, "trainer": {"n_gpus_per_node": 4}}  # 12 heads, 2 key heads
    check(on_verl(**few, rollout={"tensor_model_parallel_size": 4}))


@pytest.mark.parametrize(("sections", "message"), cases("refused_on_verl"))
def test_what_verl_cannot_do_is_refused_by_name(sections, message):
    with pytest.raises(UserError, match=message):
        check(on_verl(**sections))


def test_every_estimator_of_the_local_trainer_is_known_to_verl_or_refused():
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, AdvantageEstimator

    check(on_verl())  # rlkit's own are registered by now
    own = {str(getattr(k, "value", k)) for k in ADV_ESTIMATOR_REGISTRY} - {e.value for e in AdvantageEstimator}
    verl_s = {"grpo_vectorized", "rloo_vectorized", "opo", "gpg", "gdpo", "grpo_passk"}
    assert own - verl_s <= set(NEVER["algorithm.adv_estimator"])


@pytest.mark.parametrize(("raw", "message"), cases("verl_has_no_such"))
def test_what_verl_does_not_have_is_one_sentence(raw, message):
    with pytest.raises(UserError, match=message) as caught:
        composed(on_verl(verl=raw))
    assert "\n" not in str(caught.value)


def test_where_a_run_is_computed_is_no_part_of_its_id():
    one, many = on_verl(), on_verl(trainer={"n_gpus_per_node": 4}, rollout={"tensor_model_parallel_size": 2})
    assert one.id == many.id
    assert on_verl(verl={"a.b": 1}).id != one.id != RunConfig.model_validate({}).id


def test_the_environment_of_verl_s_processes(tmp_path, monkeypatch):
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    found = environment(on_verl(trainer={"num_threads": 3}), Files.of(tmp_path, str(tmp_path)))
    assert found["HF_HUB_OFFLINE"] == "1"  # the model is a folder
    assert found["RAY_USAGE_STATS_ENABLED"] == "1" and found["VLLM_NO_USAGE_STATS"] == "1"
    assert found["PYTHONPATH"].split(os.pathsep)[1:] == ["/mine"] and found["OMP_NUM_THREADS"] == "3"
    hub = environment(on_verl(algorithm={"adv_estimator": "gae"}), Files.of(tmp_path, "org/model"))
    assert "HF_HUB_OFFLINE" not in hub and "OMP_NUM_THREADS" not in hub
    assert hub["VERL_USE_EXTERNAL_MODULES"].endswith("rlkit.verl.worker_start")


def test_a_dry_run_writes_the_configuration_that_verl_then_reads(tmp_path):
    """From any folder."""
    root = tmp_path / 'José\'s = "runs" (1) ${HOME}'
    done = CliRunner().invoke(app, ["run", "params/verl_ladder.yaml", "--dry-run", "--root", str(root)])
    assert done.exit_code == 0, done.output
    assert "20 steps of 64 prompts" in done.stdout and "Composing verl's configuration" in done.stderr
    written = next(root.glob("verl-ladder/runs/*/verl/config.yaml"))
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-path", str(written.parent)]
    assert shlex.split(done.stdout.splitlines()[-1]) == [*command, "--config-name", "config"]
    with initialize_config_dir(str(written.parent), version_base=None):
        read = compose_files("config", return_hydra_config=True)
    assert read.hydra.output_subdir is None and read.hydra.run.dir.startswith(str(written.parent))
    content = {name: section for name, section in read_yaml(written).items() if name != "hydra"}
    assert {name: read[name] for name in content} == OmegaConf.create(content)
    assert read.data.train_files == str(written.parent / "train.parquet")
    assert read.actor_rollout_ref.rollout.gpu_memory_utilization == 0.3  # of the file's section verl


def test_a_missing_gpu_or_cluster_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = load("params/verl_ladder.yaml", {"trainer.n_gpus_per_node": 4})
    with pytest.raises(UserError, match=r"trainer\.n_gpus_per_node is 4, but this machine has 1 GPU:"):
        train(config, root=tmp_path, progress=False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UserError, match=r"No Ray cluster answers at 127\.0\.0\.1:1"):
        train(load("params/verl_ladder.yaml"), root=tmp_path, progress=False)


def test_a_trl_that_verl_does_not_start_beside_is_refused_before_anything_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(backend, "version", {"trl": "1.16.0"}.__getitem__)
    config = load("params/verl_ladder.yaml")
    with pytest.raises(UserError, match=r"does not start beside trl 1\.x.* pip uninstall trl"):
        train(config, root=tmp_path, progress=False)
    assert not list(tmp_path.glob("*/runs/*/verl"))
    monkeypatch.setattr(backend, "version", {"trl": "0.29.1"}.__getitem__)
    backend.check_machine(config)
