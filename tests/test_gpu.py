"""What only a GPU shows: captured decoding and passes, the ragged kernel, bfloat16, resume, memory that runs out.

pytest -m gpu tests/test_gpu.py
"""

from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
import tiny
import torch
from cases import table
from tiny import LETTERS

from rlkit.backends import train
from rlkit.config import Model, Optimizer, RunConfig
from rlkit.models.attention import Layout, grouped_attention, ragged_attention
from rlkit.models.decoder import Decoder
from rlkit.models.kernels import EAGER, compiled
from rlkit.params import override, validate
from rlkit.samplers.cache import Replayed, decode_attention
from rlkit.samplers.draw_tokens import Settings, draw
from rlkit.samplers.torch import TorchSampler
from rlkit.sizing.devices import device_named
from rlkit.sizing.estimate import estimate
from rlkit.sizing.memory import Plan, memory, total
from rlkit.training import learner
from rlkit.training.learner import CapturedPasses, Rows, text_batch, token_logprobs
from rlkit.training.loop import rl_step
from rlkit.training.optimizer import Stepper
from rlkit.training.run import TrainingRun

pytestmark = pytest.mark.gpu


def config(**changes) -> RunConfig:
    base = {
        "study": "gpu",
        "model": {"path": "ladder-100k", "warm_start": {"kind": "fixed", "steps": 40, "batch_size": 64}},
        "data": {"train_batch_size": 16, "max_response_length": 8}, "evaluation": {"size": 20, "n": 1},
        "trainer": {"total_training_steps": 6, "test_freq": 3, "save_freq": 3, "device": "cuda"},
    }  # fmt: skip
    return validate(RunConfig, base | changes)


def test_captured_decoding_draws_what_the_step_by_step_sampler_draws():
    model, prompts = tiny.model().cuda(), tiny.prompts(9)
    captured, plain = TorchSampler(model, stop_ids=(3, 8)), TorchSampler(model, stop_ids=(3, 8))
    plain.fixed, changed = False, torch.Generator("cuda").manual_seed(0)
    for seed in range(4):  # as it is, captured, replayed
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn(parameter.shape, device="cuda", generator=changed)
        captured.sync(model), plain.sync(model)
        groups, others = (s.sample(prompts, 20, seed=seed, max_tokens=40) for s in (captured, plain))
        for a, b in zip(groups, others, strict=True):
            same = np.mean([x.ids.tolist() == y.ids.tolist() for x, y in zip(a, b, strict=True)])
            # Another batch size is another kernel: a draw at the very border may fall over it.
            assert same > 0.9
            for x, y in zip(a, b, strict=True):
                if x.ids.tolist() == y.ids.tolist():
                    np.testing.assert_allclose(x.logprobs, y.logprobs, atol=1e-4)


def test_work_that_cannot_be_captured_is_done_as_it_is():
    numbers = torch.arange(4, device="cuda")
    waits = Replayed(lambda: numbers.sum().item(), numbers.device)  # a capture may not wait
    assert waits() == 6
    with pytest.warns(UserWarning, match="without a CUDA graph"):
        assert waits() == 6
    assert waits() == 6
    sums = Replayed(lambda: numbers.sum(), numbers.device)  # others are captured still
    assert [int(sums()) for _ in range(3)] == [6, 6, 6] and sums.graph is not None


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize(("heads", "kv", "d"), [(14, 2, 64), (6, 6, 32), (2, 2, 24), (28, 4, 128)])
def test_the_decoding_kernel_computes_the_attention_of_each_row(dtype, bound, heads, kv, d):
    from rlkit.samplers.decode_kernel import attend

    torch.manual_seed(0)
    options: dict = dict(dtype=torch.float64, device="cuda")
    prompts, own = torch.randn(2, 3, kv, 200, d, **options), torch.randn(2, 10, kv, 150, d, **options)
    places = [0, 3, 5, 8, 9], [0, 0, 0, 1, 1, 1, 2, 2, 2, 0], [200, 3, 65]
    owner, prompt, lengths = (torch.tensor(x, device="cuda") for x in places)
    index = owner, prompt, lengths
    for step in (0, 1, 64, 149):
        qkv, at = torch.randn(5, heads + 2 * kv, d, **options), torch.tensor([step], device="cuda")
        exact = decode_attention(qkv, prompts, own, *index, at)
        written = own.to(dtype)
        ours = attend(qkv.to(dtype), prompts.to(dtype), written, *index, at)
        assert torch.equal(written, own.to(dtype))
        assert (ours - exact).norm() / exact.norm() < bound


def test_draws_from_a_large_vocabulary_are_those_of_the_cpu():
    random = torch.Generator().manual_seed(0)
    logits, uniform = torch.randn(256, 151_936, generator=random), torch.rand(256, generator=random)
    how = Settings(temperature=1.0, top_p=1.0)
    (here, own), (there, other) = draw(logits, uniform, how), draw(logits.cuda(), uniform.cuda(), how)
    same = here == there.cpu()
    assert same.float().mean() > 0.95  # the rounding of sums moves borders
    torch.testing.assert_close(own[same], other.cpu()[same], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(*table("gpu_vllm_models"))
def test_a_vllm_engine_that_slept_has_the_new_weights(family, dtype, rank):
    pytest.importorskip("vllm", reason="pip install 'rlkit[gpu]'")
    process = get_context("spawn").Process(target=steps_of_vllm, args=(family, dtype, rank))
    process.start()  # vLLM has one engine that sleeps a process
    process.join()
    assert process.exitcode == 0


def steps_of_vllm(family: str, dtype: str, rank: int) -> None:
    """Three steps, each with an update that leaves torch's allocator with all of the card; twice the same samples."""
    from rlkit.models.ladder import byte_tokenizer
    from rlkit.models.loading import Policy, add_lora
    from rlkit.samplers import vllm

    vllm.SLEEPS_ABOVE = 0
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "max_position_embeddings": 512}
    model = tiny.model(family, hidden_size=128, initializer_range=0.05, vocab_size=260, **heads)
    model = model.to(getattr(torch, dtype)).cuda()
    model = add_lora(model, Model(lora_rank=rank), 0) if rank else model
    policy = Policy(model, byte_tokenizer(), (3,), 0)
    sampler = vllm.VllmSampler(policy, max_num_seqs=1024, max_model_len=512)
    prompts = tiny.prompts(3)
    for step in range(3):
        samples, again = (sampler.sample(prompts, 4, seed=step, max_tokens=12) for _ in range(2))
        flat = [s for group in samples for s in group]
        assert [s.ids.tolist() for s in flat] == [s.ids.tolist() for group in again for s in group]
        assert len({tuple(s.ids) for s in flat}) > 9
        batch = text_batch([p for p in prompts for _ in range(4)], [s.ids for s in flat], 0, "cuda")
        rows = Rows.of(batch, torch.arange(12).cuda())
        with torch.no_grad():
            own, _ = token_logprobs(Decoder(policy.model), rows)
            drawn = np.concatenate([s.logprobs for s in flat])
            gap = np.abs(drawn - own[rows.layout.present].float().cpu().numpy())
            assert gap.max() < {"float32": 5e-3, "float16": 0.03, "bfloat16": 0.15}[dtype], gap
            sampler.release()
            torch.cuda.empty_cache()
            torch.empty(torch.cuda.mem_get_info()[0] - 2**26, dtype=torch.uint8, device="cuda")
            for parameter in policy.model.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.02 * torch.randn_like(parameter))
        sampler.sync(policy.model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_ragged_kernel_computes_the_grouped_attention_and_its_gradient(dtype):
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(9)[None] < torch.tensor([9, 4, 6])[:, None]
    present = torch.arange(7)[None] < torch.tensor([7, 1, 5, 3, 2, 7])[:, None]
    layout = Layout(mask.cuda(), torch.tensor([0, 0, 1, 2, 2, 2]).cuda(), present.cuda())
    n = int(mask.sum() + present[:, 1:].sum())
    qkv = torch.randn(n, 4 + 2 * 2, 32, generator=generator).cuda()
    grad = torch.randn(n, 4, 32, generator=generator).cuda()
    exact, half = qkv.clone().requires_grad_(), qkv.to(dtype).requires_grad_()
    a, b = grouped_attention(exact, layout, 4), ragged_attention(half, layout, 4)
    a.backward(grad), b.backward(grad.to(dtype))
    torch.testing.assert_close(b.float(), a, atol=3e-2, rtol=3e-2)
    assert half.grad is not None
    torch.testing.assert_close(half.grad.float(), exact.grad, atol=6e-2, rtol=6e-2)


@pytest.mark.parametrize(*table("gpu_gaps"))
def test_a_run_trains_and_sampler_and_trainer_agree(tmp_path, changes, tf32, bound):
    c = override(config().model_dump(mode="json"), {"rollout.sync_check_freq": 1, "trainer.tf32": tf32})
    c = validate(RunConfig, override(c, {f"model.{key}": value for key, value in changes.items()}))
    run = train(c, root=tmp_path, progress=False)
    gaps = [m["policy/logprob_gap"] for m in tiny.metrics_of(run) if "policy/logprob_gap" in m]
    assert run.status == "finished" and gaps and max(gaps) < bound


@pytest.mark.parametrize(*table("gpu_replayed"))
def test_replayed_passes_accumulate_the_gradient_of_packed_ones(monkeypatch, dtype, rank, compile_):
    monkeypatch.setattr(learner, "FEWEST", 2)
    model = (tiny.adapted() if rank else tiny.model()).cuda()
    exact = Decoder(model)
    model.compute_dtype = getattr(torch, dtype)
    decoder = Decoder(model, kernels=compiled() if compile_ else EAGER)
    batch = tiny.batch([1, 9, 2, 7, 3, 9, 8, 1])
    batch = replace(batch, **{k: v.cuda() for k, v in vars(batch).items() if isinstance(v, torch.Tensor)})
    batch.prompt_mask[0, 3:] = False
    passes, rows = CapturedPasses(decoder, 0.7), torch.arange(8).cuda()
    parts = passes.parts(batch, rows, rows, 3 * (5 + 2 * 9))
    assert parts is not None and len(parts) == 2
    optimizer = Stepper(model, Optimizer(), 1000, 10)

    def backward(forward, part) -> None:
        """A function, because no graph of the weights may live when a pass is captured."""
        logprobs, _ = forward(part)
        (logprobs * torch.arange(logprobs.numel(), device="cuda").view_as(logprobs)).sum().backward()

    def gradient(forward) -> torch.Tensor:
        for parameter in optimizer.parameters:
            parameter.grad = None
        for part in parts:
            backward(forward, part)
            optimizer.keep_gradients()
        return torch.cat([p.grad.flatten() for p in optimizer.parameters if p.grad is not None])

    for _ in range(3):  # the first pass runs as it is, the second is captured, all others are replayed
        replayed = gradient(passes)
        packed, true = (gradient(lambda part, d=d: token_logprobs(d, part, 0.7)) for d in (decoder, exact))
        # Another attention kernel rounds otherwise, in bfloat16 visibly; it must not round worse.
        assert (replayed - true).norm() <= 2 * (packed - true).norm() + 1e-5 * true.norm()
        with torch.no_grad():  # in place, as an optimizer does: the graphs read the new weights
            for parameter in optimizer.parameters:
                parameter.add_(0.01 * torch.randn_like(parameter))
    assert passes.captures == 1


@pytest.mark.parametrize("compile_", [False, True])
def test_a_refreshed_sampler_goes_on_with_the_new_weights(compile_):
    """Larger buffers replace smaller ones, with their graphs; steps are replayed by the end."""
    model, prompts = tiny.model().cuda(), tiny.prompts(9)
    sampler = TorchSampler(model, stop_ids=(), kernels=compiled() if compile_ else EAGER)
    for seed, n in enumerate((4, 4, 8, 8, 8)):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        sampler.sync(model)
        groups = sampler.sample(prompts, n, seed=seed, max_tokens=24)
        drawn = [s.ids for g in groups for s in g]
        batch = text_batch([p for p in prompts for _ in range(n)], drawn, 0, "cuda")
        with torch.no_grad():
            ours, _ = token_logprobs(Decoder(model), Rows.of(batch, torch.arange(9 * n).cuda()))
        theirs = np.stack([s.logprobs for g in groups for s in g])
        assert np.abs(ours.cpu().numpy() - theirs).max() < 1e-4
    assert sampler.cache is not None
    steps = sampler.cache.steps.values()
    assert steps and all(step.graph is not None for step in steps)


def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(tmp_path):
    c = config()
    whole = train(c, root=tmp_path / "whole", progress=False)
    # Killed after the checkpoint of step 3.
    with TrainingRun.open(c, tmp_path / "cut", progress=False) as session:
        session.evaluate()
        for _ in range(4):
            rl_step(session)
            session.end_step()
            if session.step == 3:
                session.save()
    cut = train(c, root=tmp_path / "cut", progress=False)
    for a, b in zip(tiny.metrics_of(whole), tiny.metrics_of(cut), strict=True):
        assert a["step"] == b["step"]
        assert a["compute/total_flops"] == pytest.approx(b["compute/total_flops"], rel=1e-3)
        if "actor/pg_loss" in a:
            assert a["actor/pg_loss"] == pytest.approx(b["actor/pg_loss"], abs=1e-3)
            assert a["critic/score/mean"] == pytest.approx(b["critic/score/mean"], abs=0.02)


def test_an_update_that_does_not_fit_goes_on_in_halves(tmp_path):
    c = config(
        model={"path": "ladder-3m", "warm_start": {"kind": "none"}},
        data={"train_batch_size": 64, "max_response_length": 64},
        trainer={"total_training_steps": 2, "test_freq": 0, "save_freq": 0, "device": "cuda"},
        actor={"micro_batch_tokens": 10**6}, rollout={"n": 16},
        reward={"custom_reward_function": LETTERS},
    )  # fmt: skip
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(2 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    try:
        with pytest.warns(UserWarning, match="half of it"):
            run = train(c, root=tmp_path, progress=False)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert run.status == "finished"


@pytest.mark.parametrize(*table("gpu_predicted"))
def test_memory_and_seconds_are_as_predicted(tmp_path, changes):
    c = config(
        model=changes | {"warm_start": {"kind": "none"}}, data={"train_batch_size": 64, "max_response_length": 128},
        actor={"micro_batch_tokens": 32_768}, trainer={"total_training_steps": 8, "test_freq": 0, "device": "cuda"},
        reward={"custom_reward_function": LETTERS}, evaluation={"size": 16, "n": 1},
    )  # fmt: skip
    phases, longest = [], 0
    with TrainingRun.open(c, tmp_path, progress=False) as session:
        for step in range(8):
            if step == 2:  # graphs are captured, moments are there
                torch.cuda.reset_peak_memory_stats()
            rollouts = rl_step(session)
            torch.cuda.synchronize()
            session.end_step()
            longest = max(longest, *(len(r.prompt_ids) for r in rollouts))
            phases.append({k: v for k, v in session.metrics.items() if k.startswith("timing_s/")})
    lengths = longest, 128
    predicted = total(memory(Plan(c, device_named("here"), lengths)))
    measured = torch.cuda.max_memory_allocated()
    predicted_time = estimate(c, "here", lengths)
    assert predicted_time is not None
    taken = float(np.median([p["timing_s/step"] - p["timing_s/reward"] for p in phases[2:]]))
    expected = predicted_time.step - predicted_time.phases["grading"]
    assert predicted == pytest.approx(measured, rel=0.15)
    assert expected == pytest.approx(taken, rel=0.3)
