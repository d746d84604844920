"""What a checkpoint holds, and how a run becomes one and comes back."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rlkit.training.run import TrainingRun


def write(run: "TrainingRun", folder: Path) -> None:
    """Weights as a Hugging Face (or peft adapter) folder, everything else in state.pt."""
    model: Any = run.policy.model
    model.save_pretrained(folder / "model")
    run.policy.tokenizer.save_pretrained(folder / "model")
    critic = run.learning.critic
    torch.save(
        {
            "step": run.step,
            "batches": run.batches,
            "updater": run.learning.state_dict(),
            "critic": {"weights": critic.trained(), "stepper": critic.learner.stepper.state_dict()}
            if critic
            else None,
            "ledger": run.ledger.state_dict(),
        },
        folder / "state.pt",
    )


def load(run: "TrainingRun", folder: Path) -> None:
    """Bring a freshly opened run to the state that `write` saved."""
    model: Any = run.policy.model
    if hasattr(model, "peft_config"):
        from peft import load_peft_weights, set_peft_model_state_dict

        set_peft_model_state_dict(model, load_peft_weights(str(folder / "model"), device=run.device))
    else:
        from safetensors.torch import load_file

        weights = load_file(folder / "model" / "model.safetensors", device=run.device)
        missing, unexpected = model.load_state_dict(weights, strict=False)
        tied = set(getattr(model, "_tied_weights_keys", None) or {})
        if unexpected or not set(missing) <= tied:
            raise RuntimeError(
                f"{folder} does not hold this model: missing {missing}, unexpected {unexpected}"
            )
        model.tie_weights()
    saved = torch.load(folder / "state.pt", map_location=run.device, weights_only=True)
    run.learning.load_state_dict(saved["updater"])
    if run.learning.critic is not None:
        run.learning.critic.load(saved["critic"]["weights"])
        run.learning.critic.learner.stepper.load_state_dict(saved["critic"]["stepper"])
    run.ledger.load_state_dict(saved["ledger"])
    run.batches = saved.get("batches", saved["step"])


def size_of(run: "TrainingRun") -> int:
    """Bytes of one checkpoint, estimated: trained weights with two moments, and the critic's likewise."""
    models = [run.policy.model, run.learning.critic]
    trained = sum(
        p.numel() * p.element_size()
        for m in models
        if m is not None
        for p in m.parameters()
        if p.requires_grad
    )
    return 3 * trained + 1_000_000
