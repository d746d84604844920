"""How long a run takes, from shapes, FLOPs, bytes and launches: the one prediction of time.

A phase takes what its slowest resource takes: products at a share of the peak, memory at a share of the bandwidth,
kernels at a launch each. The shares are chosen by runs on H200s, whose steps they meet to 15 % where the lengths of
answers are known (tests/benchmarks/results/gpu_h200.json), and by runs of ladder models on a CPU. How long answers are
is assumed: those of a warm-started model like the worked ones, of a pretrained model a third of the limit, the longest
of a batch up to it. Once a run has steps, `rlkit.results.progress` says what is left from them instead.
"""

from dataclasses import dataclass
from statistics import fmean

from rlkit.compute import Work
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.models.shapes import captures, is_ladder, shape_of
from rlkit.results.provenance import hardware
from rlkit.samplers.choice import chosen, together
from rlkit.sizing.devices import Device, device_named
from rlkit.sizing.memory import FLOAT, Lengths, Pass, Setting, layer_kept, sized
from rlkit.types import Task

PRODUCTS = 0.7  # share of the peak that the update's products reach; on tensor cores those of layers of at least FULL
FULL = 1152  # width of a layer that fills tensor cores; a narrower one reaches a share in proportion
BANDWIDTH = 0.7  # share of the bandwidth that passes over activations reach
DECODE = {"torch": 0.45, "vllm": 0.6}  # share of it at which decoding reads caches; torch's is measured
HOST_LINK = 2e10  # bytes per second between a GPU and pinned memory of its host
LAUNCH = {"eager": 3.5e-5, "graph": 5e-6, "cpu": 8e-6}
"""Seconds that a kernel takes at least: replayed, or called from Python with what that does between kernels (32 to 50
µs on several hosts of GPUs)."""
SCHEDULER = {"torch": 0.0, "vllm": 3e-5}
"""Seconds per sequence and token of the sampler's host, beside which the GPU computes: vLLM's, 0.3B to 3B."""
FORWARD, BACKWARD, ADAPTED_FORWARD, ADAPTED_BACKWARD = 46, 77, 40, 27
"""Kernels per layer of a training pass, counted where they are not compiled; and what adapters add."""
DECODED, DECODED_COMPILED = 14, 9  # kernels per layer of a decoded token: fitted to the times
DRAW, DRAWN = 40, 10  # kernels that draw a token; times that the logits are written or read for it
PADDED_ROWS = 1.5  # rows computed per running sequence: graphs have powers of two
PASSES, PASSES_COMPILED = 9, 10
"""Times that what a layer keeps is written or read, there and back: in float32 by eager kernels, whatever the model's
precision."""
HOST = 2e-5  # seconds of Python per sequence and step: texts to tokens and back, batches, losses, logs
GRADED, GRADED_LADDER = 8e-4, 2e-5
"""Seconds per answer: .16 ms for sums, 1 ms over six domains of which some run programs."""
START, COMPILING, ENGINE = 12.0, 15.0, 60.0
"""Seconds until a run samples: imports and graders; its kernels compiled; vLLM's start."""
VERL_MEMORY, VERL_ANSWER, VERL_STEP, VERL_START = 4.0, 1.5e-2, 2.5, 180.0
"""Of verl 0.9.1: times that its passes read and write what the local trainer's do once; seconds per answer on a GPU's
host (agent loops, the queue of answers), per step (Ray), and until it samples. They meet the steps in docs/scale.md to
30 %."""
LOADED = 4e8  # bytes of weights that are loaded per second
MEAN_ANSWER = 1 / 3  # mean length of a pretrained model's answers over the limit
SAMPLE = 64  # tasks that lengths are measured on
LETTERS = 3.5  # letters per token of a pretrained model's tokenizer
FRAME = 24  # tokens that a chat template adds


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
    """What a run takes: its start, `steps` steps and `evaluations` evaluations; FLOPs of all of it. `lengths` are those
    that answers are assumed to have."""

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
        share, step = 1 - done / self.steps, pace or self.step.total
        return self.start + share * (self.steps * step + self.evaluations * self.evaluation)


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
    card = device_named(trained_on(config, device), config.trainer.num_threads)
    config, lengths = sized(config, shape, card), lengths or expected_lengths(config)
    s, steps, e = Setting.of(config, shape, card.gpu), config.trainer.total_training_steps, config.evaluation
    evaluations = 1 + -(-steps // (config.trainer.test_freq or steps))
    step, prompts, n = step_time(config, s, card, lengths), config.data.train_batch_size, config.rollout.n
    sampled = steps * s.shape.forward(_work(lengths, prompts, n))
    sampled += evaluations * s.shape.forward(_work(lengths, e.size, e.n))
    engine = VERL_START if s.verl else ENGINE * (chosen(config, shape, card.gpu_bytes)[0] == "vllm")
    start = START + s.item * shape.parameters / LOADED + card.gpu * (COMPILING * s.compiled + engine)
    evaluation = _rollout(config, s, card, lengths, e.size * e.n) + _grading(config, e.size * e.n)
    flops = steps * step.update_flops + sampled
    return Estimate(step, steps, evaluation, evaluations, start, flops, lengths)


def estimate_warm_start(config: RunConfig, device: str = "here") -> tuple[float, float] | None:
    """(FLOPs, seconds) of a ladder model's warm start on `device`. None where the shape is not known."""
    w = config.model.warm_start
    changes = {
        "model": {"lora_rank": 0, "dtype": "float32"}, "data": {"train_batch_size": w.batch_size},
        "rollout": {"n": 1}, "actor": {"ppo_mini_batch_size": 0, "ppo_epochs": 1}, "trainer": {"backend": "local"},
    }  # fmt: skip
    sections = {name: getattr(config, name).model_copy(update=values) for name, values in changes.items()}
    found = estimate(config.model_copy(update=sections), device)
    if found is None:
        return None
    return w.steps * found.step.update_flops, w.steps * (found.step.phases["update"] + HOST * w.batch_size)


def trained_on(config: RunConfig, device: str) -> str:
    """The device that a run trains on where it is told to be on `device`: that, or the CPU."""
    gpu = bool(hardware()["gpus"]) if device == "here" else device != "cpu"
    return device if gpu and config.trainer.device != "cpu" else "cpu"


def expected_lengths(config: RunConfig) -> Lengths:
    """Mean tokens of prompts and answers of the run's first tasks, and of the longest answer of a batch."""
    limits, ladder = Lengths.limits(config), is_ladder(config.model.path)
    try:
        tasks = _first_tasks(config)
    except UserError:  # told by the check before the first step
        return limits
    prompt, answer = round(fmean(_tokens(task, ladder) for task in tasks)), limits.response * MEAN_ANSWER
    if ladder and config.model.warm_start.kind != "none":
        worked = [str(task.extra_info.get("solution") or task.ground_truth) for task in tasks]
        answer = fmean(len(text.encode()) + 1 for text in worked)
    elif ladder:
        answer = 262  # of random tokens, until one ends the answer
    answer = max(1, min(limits.response, round(answer)))
    return Lengths(min(limits.prompt, prompt), answer, limits.response)


_TASKS: dict[str, list[Task]] = {}


def _first_tasks(config: RunConfig) -> list[Task]:
    from rlkit.data import TaskStream, held_out
    from rlkit.data.stream import countable

    config = countable(config)
    if config.data.order == "curriculum":  # its first batch is the easiest, and takes all tasks to find
        config = config.model_copy(update={"data": config.data.model_copy(update={"order": "mixed"})})
    key = config.model_dump_json(include={"data", "evaluation", "seed", "trainer"})
    if key not in _TASKS:
        _TASKS[key] = TaskStream(config, held_out(config)).batch(1)[:SAMPLE]
    return _TASKS[key]


def _tokens(task: Task, ladder: bool) -> int:
    """Of a task's prompt: exactly for a ladder model's bytes."""
    text = "".join(message["content"] for message in task.prompt)
    return len(text.encode()) + 5 * len(task.prompt) + 3 if ladder else round(len(text) / LETTERS) + FRAME


def _work(lengths: Lengths, prompts: int, n: int, shared: bool = True) -> Work:
    """Of n responses to each prompt; `shared`: a group has one copy of its prompt."""
    copies = prompts if shared else prompts * n
    return Work.of([lengths.prompt] * copies, [(lengths.prompt, lengths.response)] * (prompts * n))


def _grading(config: RunConfig, answers: int) -> float:
    return answers * (GRADED_LADDER if is_ladder(config.model.path) else GRADED)


def step_time(config: RunConfig, s: Setting, device: Device, lengths: Lengths) -> StepTime:
    """Time of one step with prompts and answers of `lengths`."""
    a, prompts, n = config.actor, config.data.train_batch_size, config.rollout.n
    p, critic = Pass.of(config, lengths, s), config.algorithm.needs.critic
    work, parts = _work(lengths, prompts, n, not s.verl), max(1, a.mini_batches(prompts))
    several = s.verl or a.ppo_epochs > 1 or bool(a.ppo_mini_batch_size) or config.algorithm.use_kl_in_reward
    passes = int(several) + int(s.reference) + critic
    rounds, forward = a.ppo_epochs + critic * config.critic.ppo_epochs, s.shape.forward(work)
    update = (s.shape.training(work) + forward * s.checkpointing) * rounds
    there = FORWARD + ADAPTED_FORWARD * (s.rank > 0)
    kernels = there * (1 + s.checkpointing) + BACKWARD + ADAPTED_BACKWARD * (s.rank > 0)
    eager, captured = LAUNCH["eager" if s.on_gpu else "cpu"], captures(config, s.on_gpu, s.shape.parameters)
    launch = LAUNCH["graph"] if captured and not s.verl else eager
    moved = (s.item + FLOAT * s.whole) * s.shape.parameters
    offloaded = 2 * 2 * FLOAT * s.trained * s.offloads / HOST_LINK / s.gpus
    phases = {
        "rollout": _rollout(config, s, device, lengths, prompts * n),
        "grading": _grading(config, prompts * n),
        "log-probs": _time(forward * passes, s, device, p, passes * parts, there * eager),
        "update": _time(update, s, device, p, rounds * parts, kernels * launch) + offloaded * rounds * parts,
        "sync": 3 * moved / (BANDWIDTH * device.bytes_per_second),
        "host": VERL_STEP + VERL_ANSWER * prompts * n / s.gpus if s.verl else HOST * prompts * n,
    }
    return StepTime({name: value for name, value in phases.items() if value}, update)


def _products_per_second(s: Setting, device: Device) -> float:
    """FLOPs per second of matrix products."""
    if s.item == FLOAT:
        return PRODUCTS * device.float32_per_second
    return PRODUCTS * min(1.0, s.shape.hidden / FULL) * device.flops_per_second


def _time(flops: float, s: Setting, device: Device, p: Pass, times: int, launches: float) -> float:
    """Seconds of `times` the passes over a mini-batch, whose layers take `launches` seconds at least."""
    layers = times * p.count * s.shape.layers
    products, least = flops / s.gpus / _products_per_second(s, device), launches * layers
    moved = layer_kept(s, p) * (PASSES_COMPILED if s.compiled else PASSES * FLOAT / s.item)
    memory = layers * moved * (VERL_MEMORY if s.verl else 1) / (BANDWIDTH * device.bytes_per_second)
    return max(products + memory, least) if s.on_gpu else products + memory + least


def _rollout(config: RunConfig, s: Setting, device: Device, lengths: Lengths, total: int) -> float:
    """Seconds of sampling `total` answers: every token goes through the products, reads each sequence's cache, and is
    drawn from the logits; those that have ended cost nothing, but steps are made until the longest has. Copies of the
    sampler's weights share the answers, the GPUs of a copy its weights and caches."""
    sampler = "vllm" if s.verl else chosen(config, s.shape, device.gpu_bytes)[0]
    total, bandwidth = -(-total * s.tensor // s.gpus), BANDWIDTH * device.bytes_per_second
    rows = min(total, together(config))
    running = rows * min(1.0, PADDED_ROWS * lengths.response / lengths.longest)
    products = 2 * s.shape.parameters * running / _products_per_second(s, device)
    weights = s.item * s.shape.parameters / bandwidth
    cache = running * (lengths.prompt + lengths.response / 2) * s.cache
    attention = cache / (DECODE[sampler] * device.bytes_per_second)
    draws = DRAWN * FLOAT * running * s.shape.vocab / bandwidth
    kernels = (DECODED_COMPILED if s.compiled else DECODED) * s.shape.layers + DRAW
    launches = kernels * LAUNCH["graph" if s.on_gpu else "cpu"]
    token = (max(products, weights) + attention + draws) / s.tensor + launches
    return -(-total // rows) * lengths.longest * max(token, SCHEDULER[sampler] * running)
