"""Bytes that a run holds, while it samples and while it learns, by part."""

from dataclasses import dataclass, replace

from rlkit.config import RunConfig
from rlkit.sizing.devices import GIB, Device
from rlkit.sizing.memory import FLOAT, Lengths, Pass, Setting, pass_parts, weights
from rlkit.sizing.shapes import ModelShape

SLEEPS_ABOVE = 8 * GIB
"""Size of a vLLM engine, its cache included, that sleeps during the update; a smaller one hardly fills the GPU."""
ENGINE = 2 * GIB
"""vLLM's activations of the largest batch and its CUDA graphs."""
LOGITS = 18
"""Bytes a sequence and word of the vocabulary while vLLM draws: logits in bfloat16 and float32, their log-probs,
probabilities and noise."""
TALLEST = 256
"""Sequences that must fit at once for a vLLM engine to be worth starting."""
FREE = 0.92
"""Share of the free memory that a vLLM engine may take."""
CONTEXT = 0.6e9
"""The CUDA context and the libraries' workspaces, which torch does not count."""
USABLE = 0.95
"""Share of a device that can be filled before fragmentation ends the run."""
TOKENS = (32_768, 16_384, 8_192)
"""Of a pass, where the config leaves it open: 36,864 a pass took half the time of 8,192 in the 1.5B shape's update."""
FILLED = 0.75
"""Share of a GPU's memory up to which `TOKENS` is chosen: the prediction is right to 15 %."""
VLLM_FROM = 4_000_000_000
"""Parameters from which `auto` takes vLLM. The captured torch decoder made 129,000 tokens/s at 0.5B, 81,000 at 1.5B,
and, its kernels not compiled, 44,000 at 3B and 27,000 at 7B; vLLM 0.24 32,000, 21,000 to 33,000, 37,000 and 25,000 (512
sequences of 512 tokens, bfloat16, H200)."""
HELD = 0.35
"""Share of a GPU's memory that the torch sampler may hold for `auto`: vLLM sleeps during the update, this does not."""
WITH_CRITIC = ("gae", "turn_gae")


@dataclass(frozen=True)
class Memory:
    """Bytes by part: `held` all the time, besides it in the `rollout` and in the `update`."""

    held: dict[str, int]
    rollout: dict[str, int]
    update: dict[str, int]

    @property
    def rollout_bytes(self) -> int:
        return sum(self.held.values()) + sum(self.rollout.values())

    @property
    def update_bytes(self) -> int:
        return sum(self.held.values()) + sum(self.update.values())

    @property
    def peak(self) -> int:
        """The most at a time."""
        return max(self.rollout_bytes, self.update_bytes)


def memory_of(
    config: RunConfig, shape: ModelShape, device: Device, on_gpu: bool, lengths: Lengths | None = None
) -> Memory:
    """Memory of a run with the local trainer.

    Args:
        on_gpu: the run is on `device`, a GPU; otherwise on a CPU.
        lengths: of the longest prompt and response; default: the config's limits.
    """
    s, lengths = Setting.of(config, shape, on_gpu), lengths or Lengths.limits(config)
    p = Pass.of(config, lengths, s)
    held = trainer_held(config, s)
    if sampler_of(config, shape, device, on_gpu)[0] == "vllm":
        sampler_held, rollout = _vllm(config, s, device, lengths, sum(held.values()))
    else:
        sampler_held, rollout = torch_held(config, s, lengths), _torch(config, s, lengths)
    update = _update(config, s, p)
    if config.captures(on_gpu, shape.parameters):  # what a captured pass needs stays its own
        held["captured passes"] = sum(pass_parts(s, p).values())
        update = {"gradients": FLOAT * s.trained}
    return Memory(held | sampler_held, rollout, update)


def sized(config: RunConfig, shape: ModelShape, device: Device, on_gpu: bool) -> RunConfig:
    """The config with `actor.micro_batch_tokens`, where it is unset and passes are on a GPU: as many tokens as are
    predicted to leave a part of its memory free. Few tokens a pass wait for their launches."""
    actor = config.actor
    if not on_gpu or actor.micro_batch_tokens or actor.ppo_micro_batch_size:
        return config

    def of(tokens: int) -> RunConfig:
        return config.model_copy(update={"actor": actor.model_copy(update={"micro_batch_tokens": tokens})})

    room = FILLED * device.memory_gb * 1e9
    fits = (c for c in map(of, TOKENS) if memory_of(c, shape, device, on_gpu).update_bytes <= room)
    return next(fits, of(TOKENS[-1]))


def trainer_held(config: RunConfig, s: Setting) -> dict[str, int]:
    """What the trainer holds from its first optimizer step on, by part."""
    return {
        "weights": weights(s),
        "optimizer": 2 * FLOAT * s.trained,
        **_reference(config, s),
        **_critic(config, s),
    }


def choose(name: str, parameters: int, on_gpu: bool, installed: bool, held: float = 0.0) -> tuple[str, str]:
    """(torch or vllm, why) for a model of `parameters` weights when `rollout.name` is `name`; the torch sampler's
    weights and cache would hold the share `held` of the GPU's memory."""
    if name != "auto":
        return name, f"rollout.name is {name}"
    if not on_gpu:
        return "torch", "there is no GPU"
    if parameters < VLLM_FROM and held <= HELD:
        return "torch", f"{parameters:,} parameters decode faster in CUDA graphs than under vLLM's scheduler"
    why = (
        f"{parameters:,} parameters decode as fast in vLLM, which sleeps during the update"
        if parameters >= VLLM_FROM
        else f"the torch sampler would hold {held:.0%} of the GPU's memory during the update, and vLLM sleeps"
    )
    if not installed:
        return "torch", f"vLLM is not installed, and pip install 'rlkit[gpu]' would save memory: {why}"
    return "vllm", why


def sampler_of(
    config: RunConfig, shape: ModelShape, device: Device, on_gpu: bool, installed: bool = True
) -> tuple[str, str]:
    """`choose` for a run on a device."""
    held = sum(torch_held(config, Setting.of(config, shape, on_gpu), Lengths.limits(config)).values())
    return choose(config.rollout.name, shape.parameters, on_gpu, installed, held / (device.memory_gb * 1e9))


def needs_reference(config: RunConfig) -> bool:
    """Whether log-probs of a reference policy are computed."""
    return config.actor.use_kl_loss or config.algorithm.use_kl_in_reward


def needs_critic(config: RunConfig) -> bool:
    """Whether values are learnt."""
    return config.algorithm.adv_estimator in WITH_CRITIC


def _reference(config: RunConfig, s: Setting) -> dict[str, int]:
    """A frozen copy of the model, and its fused weights; an adapter is switched off instead."""
    if not needs_reference(config) or not s.whole:
        return {}
    return {"reference": (FLOAT + s.item) * s.shape.parameters}


def critic_setting(config: RunConfig, s: Setting) -> Setting:
    """The critic as it is trained: an adapter over the policy's base, or whole."""
    rank = config.critic.model.lora_rank
    rank = config.model.lora_rank if rank is None else rank
    return replace(s, rank=rank, targets=s.targets if rank else ())


def _critic(config: RunConfig, s: Setting) -> dict[str, int]:
    if not needs_critic(config):
        return {}
    critic = critic_setting(config, s)
    return {"critic": 3 * FLOAT * (critic.trained + s.shape.hidden + 1)}


def _update(config: RunConfig, s: Setting, p: Pass) -> dict[str, int]:
    """The fullest moment of the policy's or the critic's update. Gradients stand beside a pass where a pass came
    before it; otherwise they are whole when the activations are gone, and the embedding's is there twice."""
    settings, fullest = [s], {}
    if needs_critic(config):
        settings.append(critic_setting(config, s))
    for setting in settings:
        gradients = FLOAT * setting.trained
        parts = pass_parts(setting, p)
        if config.actor.entropy_coeff:
            parts["activations"] *= 2  # the bonus is a pass of its own
        during = {"gradients": gradients if p.count > 1 else 0, **parts}
        after = {
            "gradients": gradients,
            "embedding's gradient": FLOAT * s.shape.vocab * s.shape.hidden * setting.whole,
        }
        fullest = max(fullest, during, after, key=lambda parts: sum(parts.values()))
    return fullest


def cache_bytes(s: Setting) -> int:
    """Bytes of keys and values a token."""
    return 2 * s.shape.layers * s.shape.kv * s.item


def together(config: RunConfig) -> int:
    """Sequences that are decoded at a time, in training or in an evaluation."""
    r, e = config.rollout, config.evaluation
    return min(max(config.data.train_batch_size * r.n, e.size * e.n), r.max_num_seqs)


def beside_cache(weights: int, rows: int, vocab: int) -> int:
    """Bytes that a vLLM engine of `rows` sequences takes besides its cache of keys and values."""
    return weights + ENGINE + LOGITS * rows * vocab


def _vllm(
    config: RunConfig, s: Setting, device: Device, lengths: Lengths, held: int
) -> tuple[dict[str, int], dict[str, int]]:
    """The engine's memory: what it wants, as far as there is room, and no less than it starts with
    (rlkit.samplers.vllm). A large one is asleep during the update."""
    rows, total = together(config), device.memory_gb * 1e9
    beside = beside_cache(s.item * s.shape.parameters, rows, s.shape.vocab)
    sequence = (lengths.prompt + lengths.response) * cache_bytes(s)
    share = config.rollout.gpu_memory_utilization
    least, wanted = (beside + k * sequence for k in (min(TALLEST, rows), rows))
    engine = int(share * total if share else max(least, min(wanted, FREE * (total - CONTEXT - held))))
    return ({}, {"vLLM": engine}) if engine > SLEEPS_ABOVE else ({"vLLM": engine}, {})


def torch_held(config: RunConfig, s: Setting, lengths: Lengths) -> dict[str, int]:
    """The torch sampler's copy of the weights, and its cache where CUDA graphs are bound to it."""
    rows, width, copy = together(config), lengths.prompt + lengths.response, s.item * s.shape.parameters
    cache = {"key-value cache": _rounded(rows) * _rounded(width, 4) * cache_bytes(s)} if s.on_gpu else {}
    return {"sampler's weights": copy, **cache}


def _torch(config: RunConfig, s: Setting, lengths: Lengths) -> dict[str, int]:
    """What the torch sampler needs while it samples: keys and values, and the logits that it draws from."""
    rows, width = together(config), lengths.prompt + lengths.response
    logits = 3 * FLOAT * rows * s.shape.vocab  # and their softmax and its running sum
    prompts = -(-rows // config.rollout.n) * lengths.prompt * cache_bytes(s)
    if s.on_gpu:
        return {"prompts": prompts, "logits": logits}
    return {"key-value cache": rows * width * cache_bytes(s) + prompts, "logits": logits}


def _rounded(size: int, parts: int = 1) -> int:
    """The next power of two, or part of one, as rlkit.samplers.static rounds rows and widths."""
    step = max(1, (1 << (size - 1).bit_length()) // parts)
    return -(-size // step) * step
