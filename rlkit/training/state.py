"""What a checkpoint holds, and how a session becomes one and comes back."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rlkit.training.session import Session


def write(session: "Session", folder: Path) -> None:
    """Weights as a Hugging Face (or peft adapter) folder, everything else in state.pt."""
    model: Any = session.policy.model
    model.save_pretrained(folder / "model")
    session.policy.tokenizer.save_pretrained(folder / "model")
    critic = session.updater.critic
    torch.save(
        {
            "step": session.step,
            "updater": session.updater.state_dict(),
            "critic": {"weights": critic.trained(), "stepper": critic.stepper.state_dict()}
            if critic
            else None,
            "ledger": session.ledger.state_dict(),
            "stream": session.stream.state_dict(),
        },
        folder / "state.pt",
    )


def load(session: "Session", folder: Path) -> None:
    """Bring a freshly opened session to the state that `write` saved."""
    model: Any = session.policy.model
    if hasattr(model, "peft_config"):
        from peft import load_peft_weights, set_peft_model_state_dict

        set_peft_model_state_dict(model, load_peft_weights(str(folder / "model"), device=session.device))
    else:
        from safetensors.torch import load_file

        weights = load_file(folder / "model" / "model.safetensors", device=session.device)
        missing, unexpected = model.load_state_dict(weights, strict=False)
        tied = set(getattr(model, "_tied_weights_keys", None) or {})
        if unexpected or not set(missing) <= tied:
            raise RuntimeError(
                f"{folder} does not hold this model: missing {missing}, unexpected {unexpected}"
            )
        model.tie_weights()
    saved = torch.load(folder / "state.pt", map_location=session.device, weights_only=True)
    session.updater.load_state_dict(saved["updater"])
    if session.updater.critic is not None:
        session.updater.critic.load(saved["critic"]["weights"])
        session.updater.critic.stepper.load_state_dict(saved["critic"]["stepper"])
    session.ledger.load_state_dict(saved["ledger"])
    session.stream.load_state_dict(saved["stream"])


def size_of(session: "Session") -> int:
    """Bytes of one checkpoint, estimated: trained weights with two moments, and the critic's likewise."""
    models = [session.policy.model, session.updater.critic]
    trained = sum(
        p.numel() * p.element_size()
        for m in models
        if m is not None
        for p in m.parameters()
        if p.requires_grad
    )
    return 3 * trained + 1_000_000
