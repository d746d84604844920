"""RunConfig on verl: every leaf has a place, verl itself accepts what comes out, the rest is refused by name."""

import math
from pathlib import Path
from typing import Any

import pytest

from rlkit.config import Optimizer, RunConfig, load
from rlkit.errors import UserError
from rlkit.params import field_paths, read_yaml
from rlkit.training.optimizer import schedule
from rlkit.verl import composing, limits, verl_config
from rlkit.verl.fields import FIELDS, By, Refused, To
from rlkit.verl.layout import Files

PARAMS = sorted(
    path
    for path in Path("params").glob("*.yaml")
    if isinstance((content := read_yaml(path)).get("run", content).get("data"), dict)
    and path.stem != "scalerl"  # filters groups, which is refused below
)
ESTIMATORS = ("gae", "grpo", "rloo", "opo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gpg")
LOSSES = ("vanilla", "gspo", "cispo", "sapo", "gpg", "geo_mean", "clip_cov", "kl_cov", "dppo_tv", "dppo_kl")


def on_verl(**sections: Any) -> RunConfig:
    trainer = {"backend": "verl", **sections.pop("trainer", {})}
    return RunConfig.model_validate({"trainer": trainer, **sections})


def settings(config: RunConfig) -> dict[str, Any]:
    return verl_config.settings(
        config, Files(Path("/run/verl"), "/model", Path("/run/verl/attempt-1/answers"))
    )


def composed(config: RunConfig) -> Any:
    limits.check(config)
    return composing.compose(settings(config))


@pytest.mark.parametrize(
    ("dtype", "theirs"), [("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16")]
)
def test_passes_and_rollouts_have_the_precision_that_is_asked_for(dtype, theirs):
    import torch
    from verl.utils.torch_dtypes import PrecisionType

    verl = composed(on_verl(model={"path": "ladder-1m", "dtype": dtype})).actor_rollout_ref
    assert verl.actor.fsdp_config.mixed_precision.param_dtype == theirs and verl.rollout.dtype == dtype
    assert PrecisionType.to_dtype(theirs) == getattr(torch, dtype)


def test_every_leaf_of_the_config_has_a_place():
    paths = field_paths(RunConfig)
    leaves = {p for p in paths if not any(q.startswith(f"{p}.") for q in paths)}
    assert leaves == set(FIELDS)
    assert all(isinstance(rule, To | By | Refused) for rule in FIELDS.values())
    assert all(rule.how if isinstance(rule, By) else True for rule in FIELDS.values())


@pytest.mark.parametrize("path", PARAMS, ids=lambda p: p.stem)
def test_verl_accepts_every_params_file(path):
    config = load(path, {"trainer.backend": "verl"})
    if config.model.lora_rank:  # verl asks an installed vLLM for its largest rank
        config = config.model_copy(update={"model": config.model.model_copy(update={"lora_rank": 0})})
    found = composed(config)
    assert found.data.train_batch_size == config.data.train_batch_size
    assert found.actor_rollout_ref.rollout.n == config.rollout.n
    assert found.trainer.total_training_steps == config.trainer.total_training_steps
    assert found.data.shuffle is False
    assert found.reward.custom_reward_function.reward_kwargs.config == config.reward.model_dump(mode="json")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name):
    found = composed(on_verl(algorithm={"adv_estimator": name, "gamma": 0.9, "lam": 0.8}))
    assert (found.algorithm.adv_estimator, found.algorithm.gamma, found.algorithm.lam) == (name, 0.9, 0.8)


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    loss = settings(
        on_verl(actor={"policy_loss": {"loss_mode": name}, "clip_ratio": 0.1, "clip_ratio_high": 0.3})
    )
    actor = "actor_rollout_ref.actor."
    assert loss[f"{actor}policy_loss.loss_mode"] == name
    assert (loss[f"{actor}clip_ratio_low"], loss[f"{actor}clip_ratio_high"]) == (0.1, 0.3)
    split = name not in ("geo_mean", "clip_cov", "kl_cov")  # the others see whole mini-batches
    assert loss[f"{actor}use_dynamic_bsz"] is split
    assert loss.get(f"{actor}ppo_micro_batch_size_per_gpu") == (None if split else 64 * 8)


def test_a_run_starts_a_ray_of_its_own_or_joins_the_one_that_is_named(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    own = composed(on_verl()).ray_kwargs.ray_init
    assert (own.address, own.num_cpus) == ("local", verl_config.LOCAL_CPUS)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    joined = composed(on_verl()).ray_kwargs.ray_init  # Ray refuses num_cpus for a cluster that runs already
    assert joined.num_cpus is None and "address" not in joined
    metrics = joined.runtime_env.env_vars["VERL_FILE_LOGGER_PATH"]  # its workers do not have our environment
    assert metrics == "/run/verl/attempt-1/metrics.jsonl"


@pytest.mark.parametrize(("use", "theirs"), [(None, False), (True, True), (False, False)])
def test_verl_compiles_where_that_is_asked_for(use, theirs):
    actor = composed(on_verl(actor={"use_torch_compile": use})).actor_rollout_ref.actor
    assert actor.use_torch_compile is theirs and actor.fsdp_config.use_torch_compile is theirs


def test_values_that_verl_spells_otherwise():
    config = on_verl(
        trainer={
            "test_freq": 0,
            "save_freq": 0,
            "total_training_steps": 7,
            "nnodes": 2,
            "n_gpus_per_node": 4,
        },
        critic={"warmup_steps": 3},
        rollout={"tensor_model_parallel_size": 2},
        actor={"optim": {"clip_grad": 0, "lr": 1e-3, "lr_exponent": -0.5, "lr_reference_params": 100_000}},
        algorithm={"rollout_correction": 2.0, "adv_estimator": "gae"},
        evaluation={"temperature": 0, "n": 1},
        model={"path": "ladder-1m", "dtype": "bfloat16"},
    )
    found = settings(config)
    assert found["trainer.test_freq"] == found["trainer.save_freq"] == 7
    assert found["trainer.critic_warmup"] == 4  # verl trains the policy from this step on
    assert found["actor_rollout_ref.actor.optim.clip_grad"] == math.inf
    assert found["algorithm.rollout_correction.rollout_is"] == "token"
    assert found["algorithm.rollout_correction.rollout_is_threshold"] == 2.0
    assert found["actor_rollout_ref.rollout.val_kwargs.do_sample"] is False
    assert found["actor_rollout_ref.rollout.gpu_memory_utilization"] == 0.5  # verl's own default
    assert found["actor_rollout_ref.rollout.max_num_seqs"] == 64 * 8  # no more come at a time
    assert found["+actor_rollout_ref.actor.fsdp_config.mixed_precision"]["param_dtype"] == "bf16"
    assert found["actor_rollout_ref.actor.optim.lr"] == pytest.approx(
        1e-3 * (1_002_112 / 1e5) ** -0.5, rel=1e-6
    )
    assert "ray_kwargs.ray_init.num_cpus" not in found  # more than one machine: the cluster knows
    verl = composed(config)
    assert (verl.trainer.nnodes, verl.trainer.n_gpus_per_node) == (2, 4)
    assert verl.actor_rollout_ref.actor.optim.clip_grad == math.inf


def test_the_critic_s_passes_are_as_large_as_the_policy_s():
    """As verl's V1 trainer makes its worker: from the tokens of inference alone, 32,768 by default."""
    found = composed(on_verl(algorithm={"adv_estimator": "gae"}, actor={"micro_batch_tokens": 5000}))
    assert found.actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 5000
    assert found.critic.ppo_infer_max_token_len_per_gpu == 5000


def test_an_adapter_of_all_linear_layers_names_them_to_verl():
    """Handed all-linear, verl gives vLLM an adapter without layers."""
    import tiny
    from peft import LoraConfig, get_peft_model

    key = "actor_rollout_ref.model.target_modules"
    found = settings(on_verl(model={"lora_rank": 4}))[key]
    adapted = get_peft_model(tiny.model(), LoraConfig(r=4, target_modules="all-linear"))
    named = {
        name.rpartition(".")[2] for name, module in adapted.named_modules() if hasattr(module, "base_layer")
    }
    assert set(found) == named
    assert settings(on_verl(model={"lora_rank": 4, "target_modules": ["q_proj"]}))[key] == ["q_proj"]


@pytest.mark.parametrize("kind", ["constant", "cosine"])
def test_verl_s_learning_rate_is_the_local_one_at_every_step(kind):
    import torch
    from verl.utils.torch_functional import get_cosine_schedule_with_warmup

    ours = Optimizer(lr=1.0, lr_warmup_steps=3, lr_scheduler_type=kind, min_lr_ratio=0.1)
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
    limits.check(on_verl(**few, rollout={"tensor_model_parallel_size": 4}))


REFUSED = [
    ({"model": {"lora_rank": 4, "lora_dropout": 0.1}}, r"model\.lora_dropout is 0\.1"),
    ({"algorithm": {"filter_groups": {"enable": True}}}, r"algorithm\.filter_groups\.enable is True"),
    ({"algorithm": {"norm_adv_by_std_in_batch": True}}, r"algorithm\.norm_adv_by_std_in_batch is True"),
    ({"algorithm": {"truncated": "mask"}}, r"algorithm\.truncated is 'mask'"),
    ({"reward": {"overlong_buffer": {"enable": True, "len": 8}}}, r"reward\.overlong_buffer\.enable is True"),
    ({"trainer": {"resume_from_path": "x"}}, r"trainer\.resume_from_path is 'x'"),
    (
        {"actor": {"loss_agg_mode": "prompt-mean-token-mean"}},
        r"actor\.loss_agg_mode is 'prompt-mean-token-mean'",
    ),
    *(
        ({"algorithm": {"adv_estimator": name}}, rf"algorithm\.adv_estimator is '{name}'")
        for name in sorted(limits.UNSUPPORTED)
    ),
    ({"trainer": {"device": "cpu"}}, r"trainer\.device is 'cpu'"),
    ({"trainer": {"tf32": True}}, r"trainer\.tf32 is True"),
    ({"trainer": {"n_gpus_per_node": 3}}, "which 3 GPUs cannot share evenly"),
    (
        {"rollout": {"tensor_model_parallel_size": 2}},
        r"rollout\.tensor_model_parallel_size is 2, which does not",
    ),
    (
        {
            "model": {"path": "Qwen/Qwen2.5-0.5B-Instruct"},
            "trainer": {"n_gpus_per_node": 4},
            "rollout": {"tensor_model_parallel_size": 4},
        },
        r"size is 4, over which vLLM cannot divide the 14 attention heads of 'Qwen",
    ),
    (
        {"trainer": {"n_gpus_per_node": 2}, "actor": {"policy_loss": {"loss_mode": "kl_cov"}}},
        r"actor\.policy_loss\.loss_mode is 'kl_cov'",
    ),
    ({"actor": {"ppo_epochs": 2, "optim": {"lr_warmup_steps": 5}}}, r"actor\.optim has a schedule"),
    (
        {"algorithm": {"adv_estimator": "gae", "truncated": "bootstrap"}},
        r"algorithm\.truncated is 'bootstrap'",
    ),
]


@pytest.mark.parametrize("sections, message", REFUSED)
def test_what_verl_cannot_do_is_refused_by_name(sections, message):
    with pytest.raises(UserError, match=message):
        limits.check(on_verl(**sections))


def test_every_estimator_of_the_local_trainer_is_known_to_verl_or_refused():
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, AdvantageEstimator

    from rlkit.training import algorithms

    algorithms.check(on_verl())  # rlkit's own are registered by now
    own = {str(getattr(k, "value", k)) for k in ADV_ESTIMATOR_REGISTRY} - {
        e.value for e in AdvantageEstimator
    }
    verl_s = {"grpo_vectorized", "rloo_vectorized", "opo", "gpg", "gdpo", "grpo_passk"}
    assert own - verl_s <= set(limits.UNSUPPORTED)


def test_raw_overrides_reach_verl_and_unknown_ones_do_not():
    raw = {"actor_rollout_ref": {"rollout": {"gpu_memory_utilization": 0.7}}, "+trainer.my_note": "x y"}
    found = composed(on_verl(verl=raw))
    assert found.actor_rollout_ref.rollout.gpu_memory_utilization == 0.7
    assert found.trainer.my_note == "x y"
    with pytest.raises(UserError, match=r"trainer\.test_frq.*Did you mean 'trainer\.test_freq'"):
        composed(on_verl(verl={"trainer.test_frq": 3}))
    with pytest.raises(UserError, match="verl refuses"):
        composed(on_verl(verl={"actor_rollout_ref.actor.loss_agg_mode": "median"}))


def test_the_local_trainer_refuses_what_only_verl_has():
    for sections in ({"trainer": {"n_gpus_per_node": 2}}, {"rollout": {"tensor_model_parallel_size": 2}}):
        with pytest.raises(ValueError, match=r"set trainer\.backend to verl"):
            RunConfig.model_validate(sections)
    with pytest.raises(ValueError, match="verl holds overrides"):
        RunConfig.model_validate({"verl": {"trainer.x": 1}})


def test_where_a_run_is_computed_is_no_part_of_its_id():
    one, many = on_verl(), on_verl(trainer={"n_gpus_per_node": 4}, rollout={"tensor_model_parallel_size": 2})
    assert one.id == many.id
    assert on_verl(verl={"a.b": 1}).id != one.id != RunConfig.model_validate({}).id


def test_a_dry_run_prints_the_command_and_writes_verl_s_configuration(tmp_path):
    from rlkit.verl.backend import dry_run

    command, written = dry_run(load("params/verl_ladder.yaml"), tmp_path)
    assert command[1:3] == ["-m", "verl.trainer.main_ppo"]
    assert "actor_rollout_ref.rollout.gpu_memory_utilization=0.3" in command
    content = read_yaml(written)
    assert content["trainer"]["total_training_steps"] == 20
    assert content["data"]["train_files"] == str(written.parent / "train.parquet")
    assert content["actor_rollout_ref"]["rollout"]["name"] == "vllm"


def test_a_missing_gpu_is_one_sentence(tmp_path, monkeypatch):
    import torch

    from rlkit.backends import train

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = load("params/verl_ladder.yaml", {"trainer.n_gpus_per_node": 4})
    with pytest.raises(UserError, match=r"trainer\.n_gpus_per_node is 4, but this machine has 1 GPU:"):
        train(config, root=tmp_path, progress=False)


def test_a_missing_cluster_is_one_sentence(tmp_path, monkeypatch):
    from rlkit.backends import train

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UserError, match=r"No Ray cluster answers at 127\.0\.0\.1:1"):
        train(load("params/verl_ladder.yaml"), root=tmp_path, progress=False)
