"""A finished study on disk without training: what the run store would hold; notebooks that a test writes."""

import itertools
import json
from pathlib import Path
from typing import Any

import nbformat
import numpy as np

from rlkit.config import RunConfig
from rlkit.results.store import RunStore

SIZES = {"ladder-10k": 10_000, "ladder-30k": 30_000, "ladder-100k": 100_000, "ladder-300k": 300_000}
STEPS = (0, 10, 20)


def config(model: str = "ladder-10k", seed: int = 0, **changes) -> RunConfig:
    trainer = {"total_training_steps": STEPS[-1], "test_freq": 10}
    content = {"study": "sizes", "seed": seed, "model": {"path": model}, "trainer": trainer, **changes}
    return RunConfig.model_validate(content)


def write_run(root: Path, run: RunConfig, size: int, status: str = "finished") -> Path:
    """One run whose pass@1 rises with size and steps, on 40 problems of two domains with 4 samples each."""
    rng = np.random.default_rng([size, run.seed])
    with RunStore.open(run, root) as store:
        store.update(status=status, parameters_non_embedding=size)
        store.update(scorer="strict", scorer_version="1", held_out_hash="h")
        for step in STEPS:
            rate = min(0.9, (1 - 3 * size**-0.3) * (0.5 + 0.02 * step))
            rows = []
            for task in range(40):
                for sample in range(4):
                    correct = bool(rng.random() < max(rate, 0.05))
                    source = "math__sums" if task % 2 else "logic__doors"
                    row = {"task_id": f"t{task}", "data_source": source, "sample": sample, "correct": correct}
                    row |= {"value": float(correct), "error": None, "tokens": 3, "finish_reason": "stop"}
                    rows.append({**row, "response": "<b>4</b>" if correct else "5"})
            store.log_evals(step, rows)
            passed = {"eval/pass@1": float(np.mean([row["correct"] for row in rows]))}
            for source in ("math__sums", "logic__doors"):
                share = np.mean([row["correct"] for row in rows if row["data_source"] == source])
                passed[f"eval/pass@1/{source}"] = float(share)
            training = {"critic/score/mean": passed["eval/pass@1"], "actor/entropy": 2 - step / 20}
            training |= {"actor/grad_norm": 1.0, "response_length/mean": 3.0, "tokens/response": 96.0}
            store.log(step, {**passed, **training, "compute/total_flops": step * 6e3 * size})
        return store.folder


def write_study(root: Path, runs: list[tuple[RunConfig, int, dict[str, Any]]] | None = None) -> Path:
    """outputs/sizes of runs, each with its size and what the study's file says of it: by default four sizes with two
    seeds each, the largest held out."""
    if runs is None:
        both = itertools.product(SIZES.items(), (0, 1))
        told = [(model, seed, {"held_out": model == "ladder-300k", "seed": seed}) for (model, _), seed in both]
        runs = [(config(model, seed), SIZES[model], {"cell": model, **facts}) for model, seed, facts in told]
    for run, size, _ in runs:
        write_run(root, run, size)
    listed = {run.id: {"held_out": False, "seed": 0, **facts} for run, _, facts in runs}
    content = {"study": "sizes", "params": "params/sizes.yaml", "runs": listed}
    (root / "sizes" / "study.json").write_text(json.dumps(content))
    return root / "sizes"


def write_notebook(path: Path, *cells: str, tag: str = "parameters") -> Path:
    """A notebook of these cells, the first of which is tagged."""
    made = [nbformat.v4.new_code_cell(source) for source in cells]
    made[0].metadata["tags"] = [tag]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path
