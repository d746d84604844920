"""How long a run takes, from shapes, FLOPs, bytes and launches: the one prediction of time.

A phase takes what its slowest resource takes: products at a share of the peak, memory at a share of the bandwidth,
kernels at a launch each. The shares are chosen by runs on H200s, whose steps they meet to 15 % where the lengths of
answers are known (tests/benchmarks/results/gpu_h200.json), and by runs of ladder models on a CPU. How long answers are
is assumed: those of a warm-started model like the worked ones, of a pretrained model a third of the limit, the longest
of a batch up to it. Once a run has steps, `rlkit.results.progress` says what is left from them instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlkit.compute import Work
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.models.shapes import captures, is_ladder, shape_of
from rlkit.results.provenance import hardware
from rlkit.samplers import chosen, together
from rlkit.sizing.devices import Device, device_named
from rlkit.sizing.memory import (
    FLOAT,
    Lengths,
    Pass,
    Setting,
    cache_bytes,
    layer_kept,
    needs_critic,
    needs_reference,
    sized,
)
from rlkit.types import Task

PRODUCTS = 0.7
"""Share of the peak that the update's products reach; on tensor cores those of layers of at least FULL."""
FULL = 1152
"""Width of a layer that fills tensor cores; a narrower one reaches a share in proportion."""
BANDWIDTH = 0.7
"""Share of the bandwidth that passes over activations reach."""
DECODE = {"torch": 0.45, "vllm": 0.6}
"""Share of the bandwidth at which caches are read while decoding; torch's is measured."""
LAUNCH = {"eager": 3.5e-5, "graph": 5e-6, "cpu": 8e-6}
"""Seconds that a kernel takes at least: replayed, or called from Python with what that does between kernels (32 to 50
µs on several hosts of GPUs)."""
SCHEDULER = {"torch": 0.0, "vllm": 3e-5}
"""Seconds per sequence and token of the sampler's host, beside which the GPU computes: vLLM's, 0.3B to 3B."""
KERNELS = {"forward": 46, "backward": 77, "adapted forward": 40, "adapted backward": 27}
"""Kernels per layer of a training pass, counted where they are not compiled."""
DECODED = {"eager": 14, "compiled": 9}
"""Kernels per layer of a decoded token: fitted to the times."""
DRAW = 40
"""Kernels that draw a token."""
DRAWN = 10
"""Times that the logits are written or read until a token is drawn."""
PADDED_ROWS = 1.5
"""Rows computed per running sequence: graphs have powers of two."""
PASSES = {"eager": 9, "compiled": 10}
"""Times that what a layer keeps is written or read, there and back: in float32 by eager kernels, whatever the model's
precision."""
HOST = 2e-5
"""Seconds of Python per sequence and step: texts to tokens and back, batches, losses, logs."""
GRADED = {"ladder": 2e-5, "pretrained": 8e-4}
"""Seconds per answer: .16 ms for sums, 1 ms over six domains of which some run programs."""
START, COMPILING, ENGINE = 12.0, 15.0, 60.0
"""Seconds until a run samples: imports and graders; its kernels compiled; vLLM's start."""
LOADED = 4e8
"""Bytes of weights that are loaded per second."""
MEAN_ANSWER = 1 / 3
"""Mean length of a pretrained model's answers over the limit."""
SAMPLE = 64
"""Tasks that lengths are measured on."""
LETTERS, FRAME = 3.5, 24
"""Letters per token of a pretrained model's tokenizer; tokens that a chat template adds."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step by phase, FLOPs of its update, and `total`."""

    phases: dict[str, float]
    update_flops: float

    @property
    def total(self) -> float:
        return sum(self.phases.values())


@dataclass(frozen=True)
class Estimate:
    """What a run takes: its start, `steps` steps and `evaluations` evaluations; FLOPs of all of it.

    `lengths` are those that answers are assumed to have.
    """

    step: StepTime
    steps: int
    evaluation: float
    evaluations: int
    start: float
    flops: float
    lengths: Lengths

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return self.left(0)

    def left(self, done: int, pace: float | None = None) -> float:
        """Of what is left after `done` steps, where a step takes `pace` seconds (default: as predicted)."""
        share = 1 - done / self.steps
        return self.start + share * (
            self.steps * (pace or self.step.total) + self.evaluations * self.evaluation
        )


def estimate(config: RunConfig, device: str = "here", lengths: Lengths | None = None) -> Estimate | None:
    """What a run takes on a device; None where the shape of its model is not known here.

    Args:
        device: of rlkit.sizing.devices; `here` is the device that this machine would train it on.
        lengths: of prompts and answers; default: `expected_lengths`.
    """
    try:
        shape = shape_of(config.model.path)
    except UserError:
        return None
    on_gpu = trains_on_gpu(config, device)
    card = device_named(device if on_gpu else "cpu", config.trainer.num_threads)
    config, lengths = sized(config, shape, card, on_gpu), lengths or expected_lengths(config)
    s, steps, e = Setting.of(config, shape, on_gpu), config.trainer.total_training_steps, config.evaluation
    every = config.trainer.test_freq or steps
    evaluations = 1 + -(-steps // every)
    step, graded = step_time(config, s, card, lengths), _grading(config)
    prompts, n = config.data.train_batch_size, config.rollout.n
    training, held = _work(lengths, prompts, n), _work(lengths, e.size, e.n)
    flops = steps * (step.update_flops + s.shape.forward(training)) + evaluations * s.shape.forward(held)
    sampler = chosen(config, shape, card.memory_gb * 1e9 if on_gpu else None)[0]
    start = START + s.item * shape.parameters / LOADED
    start += (COMPILING * (s.kernels == "compiled") + ENGINE * (sampler == "vllm")) * on_gpu
    evaluation = _rollout(config, s, card, lengths, e.size * e.n) + graded * e.size * e.n
    return Estimate(step, steps, evaluation, evaluations, start, flops, lengths)


def estimate_warm_start(config: RunConfig) -> tuple[float, float] | None:
    """(FLOPs, seconds) of a ladder model's warm start, which is made on the CPU; of a matched one the most that it may
    take. None where the shape is not known."""
    w = config.model.warm_start
    plain = config.model_copy(
        update={
            "model": config.model.model_copy(update={"lora_rank": 0, "dtype": "float32"}),
            "data": config.data.model_copy(update={"train_batch_size": w.batch_size}),
            "rollout": config.rollout.model_copy(update={"n": 1}),
            "actor": config.actor.model_copy(update={"ppo_mini_batch_size": 0, "ppo_epochs": 1}),
        }
    )
    found = estimate(plain, "cpu")
    if found is None:
        return None
    return w.steps * found.step.update_flops, w.steps * (found.step.phases["update"] + HOST * w.batch_size)


def trains_on_gpu(config: RunConfig, device: str) -> bool:
    """Whether a run trains on a GPU where it is told to be on `device`."""
    return config.trainer.device != "cpu" and (
        bool(hardware()["gpus"]) if device == "here" else device != "cpu"
    )


def expected_lengths(config: RunConfig) -> Lengths:
    """Mean tokens of prompts and answers of the run's first tasks, and of the longest answer of a batch."""
    data = config.data
    try:
        tasks = _first_tasks(config)
    except UserError:  # told by the check before the first step
        return Lengths.limits(config)
    ladder = is_ladder(config.model.path)
    prompt = min(data.max_prompt_length, _mean([_tokens(task, ladder) for task in tasks]))
    answer = data.max_response_length * MEAN_ANSWER
    if ladder and config.model.warm_start.kind != "none":
        answer = _mean([len(_worked(task).encode()) + 1 for task in tasks])
    elif ladder:
        answer = min(data.max_response_length, 262)
    answer = max(1, min(data.max_response_length, round(answer)))
    return Lengths(prompt, answer, data.max_response_length)


def _first_tasks(config: RunConfig) -> list[Task]:
    from rlkit.data import TaskStream, held_out
    from rlkit.data.lengths import countable

    config = countable(config)
    key = config.model_dump_json(include={"data", "evaluation", "seed", "trainer"})
    if key not in _TASKS:
        _TASKS[key] = TaskStream(config, held_out(config)).batch(1)[:SAMPLE]
    return _TASKS[key]


_TASKS: dict[str, list[Task]] = {}


def _mean(values: Sequence[int]) -> int:
    return max(1, round(sum(values) / len(values)))


def _tokens(task: Task, ladder: bool) -> int:
    """Of a task's prompt: exactly for a ladder model's bytes."""
    text = "".join(message["content"] for message in task.prompt)
    return len(text.encode()) + 5 * len(task.prompt) + 3 if ladder else round(len(text) / LETTERS) + FRAME


def _worked(task: Task) -> str:
    return str(task.extra_info.get("solution") or task.ground_truth)


def _work(lengths: Lengths, prompts: int, n: int) -> Work:
    return Work.of([lengths.prompt] * prompts, [(lengths.prompt, lengths.response)] * (prompts * n))


def _grading(config: RunConfig) -> float:
    return GRADED["ladder" if is_ladder(config.model.path) else "pretrained"]


def step_time(config: RunConfig, s: Setting, device: Device, lengths: Lengths) -> StepTime:
    """Time of one step with prompts and answers of `lengths`."""
    prompts, n = config.data.train_batch_size, config.rollout.n
    work = _work(lengths, prompts, n)
    forward, training = s.shape.forward(work), s.shape.training(work)
    a = config.actor
    several = a.ppo_epochs > 1 or bool(a.ppo_mini_batch_size) or config.algorithm.use_kl_in_reward
    passes = int(several) + int(needs_reference(config)) + needs_critic(config)
    rounds = a.ppo_epochs + needs_critic(config) * config.critic.ppo_epochs
    parts = max(1, prompts // a.ppo_mini_batch_size) if a.ppo_mini_batch_size else 1
    update = (training + forward * s.checkpointing) * rounds
    p = Pass.of(config, lengths, s)
    there, back = (KERNELS[way] + KERNELS[f"adapted {way}"] * (s.rank > 0) for way in ("forward", "backward"))
    eager = LAUNCH["eager" if s.on_gpu else "cpu"]
    graph = LAUNCH["graph"] if captures(config, s.on_gpu, s.shape.parameters) else eager
    moved = (s.item + FLOAT * s.whole) * s.shape.parameters
    offloaded = 2 * 2 * FLOAT * s.trained * (a.optimizer_offload and s.on_gpu) / HOST_LINK
    phases = {
        "rollout": _rollout(config, s, device, lengths, prompts * n),
        "grading": _grading(config) * prompts * n,
        "log-probs": _time(forward * passes, s, device, p, passes * parts, there * eager),
        "update": _time(
            update, s, device, p, rounds * parts, (there * (1 + s.checkpointing) + back) * graph
        ) + offloaded * rounds * parts,
        "sync": 3 * moved / (BANDWIDTH * device.bytes_per_second),
        "host": HOST * prompts * n,
    }  # fmt: skip
    return StepTime({name: value for name, value in phases.items() if value}, update)


HOST_LINK = 2e10
"""Bytes per second between a GPU and pinned memory of its host."""


def _products_per_second(s: Setting, device: Device) -> float:
    """FLOPs per second of matrix products."""
    if s.item == FLOAT:
        return PRODUCTS * device.float32_per_second
    return PRODUCTS * min(1.0, s.shape.hidden / FULL) * device.flops_per_second


def _time(flops: float, s: Setting, device: Device, p: Pass, times: int, launches: float) -> float:
    """Seconds of `times` the passes over a mini-batch, whose layers take `launches` seconds at least."""
    count = times * p.count
    products = flops / _products_per_second(s, device)
    moved = PASSES[s.kernels] * (FLOAT / s.item if s.kernels == "eager" else 1) * layer_kept(s, p)
    memory = count * s.shape.layers * moved / (BANDWIDTH * device.bytes_per_second)
    least = launches * s.shape.layers * count
    return max(products + memory, least) if s.on_gpu else products + memory + least


def _rollout(config: RunConfig, s: Setting, device: Device, lengths: Lengths, total: int) -> float:
    """Seconds of sampling `total` answers: every token goes through the products, reads each sequence's cache, and is
    drawn from the logits; those that have ended cost nothing, but steps are made until the longest has."""
    sampler, _ = chosen(config, s.shape, device.memory_gb * 1e9 if s.on_gpu else None)
    rows = min(total, together(config))
    running = rows * min(1.0, PADDED_ROWS * lengths.response / lengths.longest)
    cache = running * (lengths.prompt + lengths.response / 2) * cache_bytes(s)
    products = 2 * s.shape.parameters * running / _products_per_second(s, device)
    weights = s.item * s.shape.parameters / (BANDWIDTH * device.bytes_per_second)
    attention = cache / (DECODE[sampler] * device.bytes_per_second)
    draws = DRAWN * FLOAT * running * s.shape.vocab / (BANDWIDTH * device.bytes_per_second)
    launches = LAUNCH["graph" if s.on_gpu else "cpu"] * (DECODED[s.kernels] * s.shape.layers + DRAW)
    token = max(max(products, weights) + attention + draws + launches, SCHEDULER[sampler] * running)
    return -(-total // rows) * lengths.longest * token
