"""How long a run takes, from shapes, FLOPs, bytes and launches: the one prediction of time.

A phase takes what its slowest resource takes: products at a share of the peak, memory at a share of the bandwidth,
kernels at a launch each. The shares are chosen by runs on H200s, whose steps they meet to 15 % where the lengths of
answers are known (tests/benchmarks/results/gpu_h200.json), and by runs of ladder models on a CPU. Answers are assumed
to be as long as the worked ones (warm-started ladder models) or a third of the limit."""

from statistics import fmean
from typing import NamedTuple

import numpy as np

from rlkit.compute import Work
from rlkit.config import RunConfig
from rlkit.config.model import is_ladder
from rlkit.errors import UserError
from rlkit.models.prompts import ladder_length
from rlkit.models.shapes import decodes_eagerly
from rlkit.results.machine import hardware
from rlkit.samplers.choice import together
from rlkit.sizing.devices import device_named
from rlkit.sizing.memory import FLOAT, Plan, layer_kept
from rlkit.types import Task

PRODUCTS = 0.7  # share of the peak that the update's products reach; on tensor cores those of layers of at least FULL
FULL = 1152  # width of a layer that fills tensor cores; a narrower one reaches a share in proportion
BANDWIDTH = 0.7  # share of the bandwidth that passes over activations reach
DECODE = {"torch": 0.45, "vllm": 0.6}  # share of it at which decoding reads caches; torch's is measured
HOST_LINK = 2e10  # bytes per second between a GPU and pinned memory of its host
# Seconds that a kernel takes at least: replayed, or called from Python (32 to 50 µs on several hosts of GPUs).
LAUNCH = {"eager": 3.5e-5, "graph": 5e-6, "cpu": 8e-6}
SCHEDULER = {"torch": 0.0, "vllm": 3e-5}  # seconds per sequence and token of the host, beside the GPU
# Kernels per layer of a training pass, counted where they are not compiled; and what adapters add.
FORWARD, BACKWARD, ADAPTED_FORWARD, ADAPTED_BACKWARD = 46, 77, 40, 27
DECODED, DECODED_COMPILED = 14, 9  # kernels per layer of a decoded token: fitted to the times
DRAW, DRAWN = 40, 10  # kernels that draw a token; times that the logits are written or read for it
PADDED_ROWS = 1.5  # rows computed per running sequence: graphs have powers of two
# Times that what a layer keeps is written or read, there and back: by eager kernels in float32.
PASSES, PASSES_COMPILED = 9, 10
HOST = 2e-5  # seconds of Python per sequence and step: texts to tokens and back, batches, losses, logs
GRADED, GRADED_LADDER = 8e-4, 2e-5  # seconds per answer: over six domains (some run programs), of sums
START, COMPILING, ENGINE = 12.0, 15.0, 60.0  # seconds of imports and graders; of compiling; of vLLM's start
# Of verl 0.9.1, as docs/scale.md has it: times that its passes read and write what the local trainer's do once (with a
# backward pass, without); seconds per answer on a GPU's host (agent loops), per step (Ray, sync), and until it samples.
VERL_UPDATE, VERL_FORWARD, VERL_ANSWER, VERL_STEP, VERL_START = 1.25, 0.75, 1.5e-2, 1.4, 180.0
LOADED = 4e8  # bytes of weights that are loaded per second
MEAN_ANSWER = 1 / 3  # mean length of a pretrained model's answers over the limit
SAMPLE = 64  # tasks that lengths are measured on
LETTERS, FRAME = 3.5, 24  # letters per token of a pretrained model; tokens that a chat template adds


class Estimate(NamedTuple):
    """What a run takes: seconds of its start, of a step by phase and of an evaluation; FLOPs of a step's update and of
    all of it. `lengths` (prompt, response, longest) are those that answers are assumed to have."""

    phases: dict[str, float]
    steps: int
    evaluation: float
    evaluations: int
    start: float
    update_flops: float
    flops: float
    lengths: tuple[int, ...]

    @property
    def step(self) -> float:
        return sum(self.phases.values())

    @property
    def seconds(self) -> float:
        return self.left(0)

    def left(self, done: int, pace: float | None = None) -> float:
        """Seconds of what is left after `done` steps, where a step takes `pace` seconds (default: as predicted)."""
        share = 1 - done / self.steps
        return self.start + share * (self.steps * (pace or self.step) + self.evaluations * self.evaluation)


def estimate(config: RunConfig, device: str = "here", lengths: tuple[int, ...] = ()) -> Estimate | None:
    """What a run takes on a device of rlkit.sizing.devices; None where the shape of its model is not known. `lengths`:
    tokens of prompts, of answers and of the longest answer (default: `expected_lengths`)."""
    card = device_named(trained_on(config, device), config.trainer.num_threads)
    try:
        plan = Plan(config, card, lengths or expected_lengths(config))
    except UserError:
        return None
    steps, e, data = config.trainer.total_training_steps, config.evaluation, config.data
    evaluations = 1 + -(-steps // (config.trainer.test_freq or steps))
    phases, update = _step(plan)
    sampled = steps * plan.shape.forward(_work(plan, data.train_batch_size, config.rollout.n))
    sampled += steps * config.algorithm.needs.greedy * plan.shape.forward(_work(plan, data.train_batch_size, 1))
    sampled += evaluations * plan.shape.forward(_work(plan, e.size, e.n))
    engine = VERL_START if plan.verl else ENGINE * (plan.sampler == "vllm")
    loaded = plan.item * plan.shape.parameters / LOADED
    start = START + loaded + card.gpu * (COMPILING * plan.compiled + engine)
    evaluation = _rollout(plan, e.size * e.n) + _grading(config, e.size * e.n)
    lengths, flops = (plan.prompt, plan.response, plan.longest), steps * update + sampled
    return Estimate(phases, steps, evaluation, evaluations, start, update, flops, lengths)


def estimate_warm_start(config: RunConfig, device: str = "here") -> tuple[float, float] | None:
    """(FLOPs, seconds) of a ladder model's warm start on `device`. None where the shape is not known."""
    w = config.model.warm_start
    changes = {
        "model": {"lora_rank": 0, "dtype": "float32"}, "data": {"train_batch_size": w.batch_size},
        "algorithm": {"adv_estimator": "grpo"}, "rollout": {"n": 1},  # there is no critic yet
        "actor": {"ppo_mini_batch_size": 0, "ppo_epochs": 1}, "trainer": {"backend": "local"},
    }  # fmt: skip
    sections = {name: getattr(config, name).model_copy(update=values) for name, values in changes.items()}
    found = estimate(config.model_copy(update=sections), device)
    return found and (w.steps * found.update_flops, w.steps * (found.phases["update"] + HOST * w.batch_size))


def trained_on(config: RunConfig, device: str) -> str:
    """The device that a run trains on where it is told to be on `device`: that, or the CPU."""
    gpu = bool(hardware()["gpus"]) if device == "here" else device != "cpu"
    return device if gpu and config.trainer.device != "cpu" else "cpu"


def expected_lengths(config: RunConfig) -> tuple[int, int, int]:
    """Mean tokens of prompts and of answers of some of the run's tasks, and of the longest answer of a batch."""
    limit, longest = config.data.max_prompt_length, config.data.max_response_length
    try:
        tasks = _some_tasks(config)
    except UserError:  # told by the check before the first step
        return limit, longest, longest
    texts = ["".join(message["content"] for message in task.prompt) for task in tasks]
    prompt, answer = fmean(round(len(text) / LETTERS) + FRAME for text in texts), longest * MEAN_ANSWER
    if is_ladder(config.model.path):  # its tokens are bytes
        prompt = fmean(ladder_length(task.prompt) for task in tasks)
        answer = fmean(len(task.worked_answer.encode()) + 1 for task in tasks)
        if config.model.warm_start.kind == "none":
            answer = 262  # of random tokens, until one ends the answer
    return min(limit, round(prompt)), max(1, min(longest, round(answer))), longest


def _some_tasks(config: RunConfig) -> list[Task]:
    """SAMPLE tasks, of each source in proportion to what the run's steps take of it."""
    from rlkit.data.held_out_tasks import apportion
    from rlkit.data.stream import planned

    sources, found = config.data.train, list[Task]()
    weights = np.array([s.weight and (s.count or s.weight) for s in sources], float)
    parts = apportion(SAMPLE, planned(config, weights, config.trainer.total_training_steps)).tolist()
    for source, part in zip(sources, parts, strict=True):
        size = source.total() or part
        found += source.tasks(range(size)[:: max(1, size // max(1, part))][:part])
    return found


def _work(plan: Plan, prompts: int, n: int, copies: int = 1) -> Work:
    """Of n responses to each prompt, of which a group has so many copies."""
    return Work.of([plan.prompt] * (prompts * copies), [(plan.prompt, plan.response)] * (prompts * n))


def _grading(config: RunConfig, answers: int) -> float:
    return answers * (GRADED_LADDER if is_ladder(config.model.path) else GRADED)


def _step(plan: Plan) -> tuple[dict[str, float], float]:
    """Seconds of one step by phase, and FLOPs of its update."""
    c, a, shape, again, gpu = plan.config, plan.config.actor, plan.shape, plan.checkpointing, plan.device.gpu
    prompts, needs = c.data.train_batch_size, c.algorithm.needs
    answers, critic = prompts * c.rollout.n, needs.critic
    sampled = answers + prompts * needs.greedy
    minis, rounds = c.mini_batches, a.ppo_epochs + critic * c.critic.ppo_epochs
    several = plan.verl or a.ppo_epochs > 1 or minis > 1 or c.algorithm.use_kl_in_reward or needs.sum_pi_squared
    passes = several + plan.reference + critic + needs.sum_pi_squared
    work = _work(plan, prompts, c.rollout.n, c.rollout.n if plan.verl else 1)
    update = (shape.training(work) + shape.forward(work) * again) * rounds
    if plan.verl:  # computes all rows at the limits
        limits = c.data.max_prompt_length, c.data.max_response_length
        work = Work.of([limits[0]] * answers, [limits] * answers)
    forward = shape.forward(work)
    computed = (shape.training(work) + forward * again) * rounds
    kernels = FORWARD + ADAPTED_FORWARD * (plan.rank > 0)
    both = kernels * (1 + again) + BACKWARD + ADAPTED_BACKWARD * (plan.rank > 0)
    eager = LAUNCH["eager" if gpu else "cpu"]
    launch = LAUNCH["graph"] if plan.captured else eager
    copied = (plan.item + FLOAT * (not plan.rank)) * shape.parameters
    moved = 2 * 2 * FLOAT * plan.trained * plan.offloads / HOST_LINK / plan.gpus * rounds * minis  # moments
    phases = {
        "rollout": _rollout(plan, sampled),
        "grading": _grading(c, sampled),
        "log-probs": _passes(plan, forward * passes, passes * minis, kernels * eager, VERL_FORWARD),
        "update": _passes(plan, computed, rounds * minis, both * launch, VERL_UPDATE * (1 + again / 2)) + moved,
        "sync": 3 * copied / (BANDWIDTH * plan.device.bytes_per_second),
        "host": VERL_STEP if plan.verl else HOST * answers,
    }
    return {name: value for name, value in phases.items() if value}, update


def _products_per_second(plan: Plan) -> float:
    """FLOPs per second of matrix products."""
    if plan.item == FLOAT:
        return PRODUCTS * plan.device.float32_per_second
    return PRODUCTS * min(1.0, plan.shape.hidden / FULL) * plan.device.flops_per_second


def _passes(plan: Plan, flops: float, times: int, launches: float, verl: float) -> float:
    """Seconds of `times` the passes, whose layers take `launches` at least; verl moves `verl` times the bytes."""
    layers = times * plan.passes * plan.shape.layers
    products, least = flops / plan.gpus / _products_per_second(plan), launches * layers
    moved = layer_kept(plan) * (PASSES_COMPILED if plan.compiled else PASSES * FLOAT / plan.item)
    memory = layers * moved * (verl if plan.verl else 1) / (BANDWIDTH * plan.device.bytes_per_second)
    return max(products + memory, least) if plan.device.gpu else products + memory + least


def _rollout(plan: Plan, answers: int) -> float:
    """Seconds of sampling: every token goes through the products, reads each sequence's cache, and is drawn from the
    logits; those that have ended cost nothing, but steps are made until the longest has. Copies of the sampler's
    weights share the answers, the GPUs of a copy its weights and caches."""
    shape, speed = plan.shape, plan.device.bytes_per_second
    tensor = plan.config.rollout.tensor_model_parallel_size
    own = -(-answers * tensor // plan.gpus)
    rows = min(own, together(plan.config))
    running = rows * min(1.0, PADDED_ROWS * plan.response / plan.longest)
    products = 2 * shape.parameters * running / _products_per_second(plan)
    weights = plan.item * shape.parameters / (BANDWIDTH * speed)
    cache = running * (plan.prompt + plan.response / 2) * plan.cache
    draws = DRAWN * FLOAT * running * shape.vocab / (BANDWIDTH * speed)
    kernels = (DECODED_COMPILED if plan.compiled else DECODED) * shape.layers + DRAW
    launches = kernels * LAUNCH["graph" if plan.device.gpu else "cpu"]
    token = (max(products, weights) + cache / (DECODE[plan.sampler] * speed) + draws) / tensor + launches
    host = SCHEDULER[plan.sampler] * (rows if plan.verl else running)
    if plan.verl and decodes_eagerly(plan.config):
        host += kernels * LAUNCH["eager"]
    seconds = -(-own // rows) * plan.longest * max(token, host)
    return max(seconds, VERL_ANSWER * answers / plan.gpus) if plan.verl else seconds
