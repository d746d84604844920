"""What usually means that a run is wasted, said loudly."""

import math
from collections.abc import Iterator, Mapping

from rlkit.config import RunConfig

UNDECIDED = 0.05  # share of answers that no scorer decided, above which the verdicts depend on the machine
CLIPPED = 0.3  # share of cut responses above which the policy learns from cut answers


def problems(metrics: Mapping[str, float], config: RunConfig) -> Iterator[tuple[str, str]]:
    """(kind, sentence) of everything in a step's metrics that a person should look at."""
    cut, gap = metrics.get("response_length/clip_ratio", 0), metrics.get("policy/logprob_gap", 0)
    bound = config.max_logprob_gap
    if cut > CLIPPED:
        yield (
            "cut",
            f"{cut:.0%} of the responses were cut at data.max_response_length = {config.data.max_response_length}: "
            "raise it, or the policy learns from cut answers.",
        )
    if late := [name for name in ("reward/killed", "reward/timeouts") if metrics.get(name, 0) > UNDECIDED]:
        yield (
            "undecided verdicts",
            f"{metrics[late[0]]:.0%} of the answers are wrong because grading them took too long or broke down "
            f"({late[0]}): raise reward.timeout, or lower reward.num_workers on a busy machine.",
        )
    if metrics.get("reward/grader_exceptions", 0) > 0:
        yield (
            "grader exceptions",
            f"A scorer raised an exception on {metrics['reward/grader_exceptions']:.1%} of the answers, and they count "
            "as wrong: `rlkit score` shows it in their parts.",
        )
    if metrics.get("group/zero_variance") == 1.0 and config.rollout.n > 1:
        yield (
            "equal rewards",
            "Every group got equal rewards, so there is nothing to learn from: change the difficulty.",
        )
    if "actor/loss_scale" not in metrics and not math.isfinite(metrics.get("actor/grad_norm", 0.0)):
        yield (
            "gradient",
            "The gradient is not finite, and the step was skipped: lower actor.optim.lr, or look at the rewards.",
        )
    if (scale := metrics.get("actor/loss_scale", 1.0)) < 1:
        yield (
            "overflow",
            f"Gradients overflow in float16 even at actor/loss_scale = {scale:g}, and those steps are skipped: "
            "use model.dtype bfloat16.",
        )
    if gap > bound:
        yield (
            "gap",
            f"The sampler's and the trainer's log-probs differ by {gap:.3g} nats a token, more than "
            f"rollout.max_logprob_gap = {bound:g}: the policy is not the one that sampled.",
        )
