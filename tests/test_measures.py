"""The tables that set the cells of a study against each other: numbers worked out by hand."""

# pandas' stubs know less of a frame's cells than the test does:
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import numpy as np
import pandas as pd
import pytest

from rlkit import measures
from rlkit.errors import UserError
from rlkit.figures import contrasts

STEPS = (0, 10, 20, 30)


def metrics(curves: dict[tuple[str, int], list[float]]) -> pd.DataFrame:
    """Rows as `rlkit.read` gives them, of runs (cell, seed) with pass@1 at STEPS."""
    rows = []
    for (cell, seed), curve in curves.items():
        size = {"small": 1e4, "large": 1e5}.get(cell, 1e4)
        facts = {"run": f"{cell}-{seed}", "cell": cell, "seed": seed, "parameters_non_embedding": size}
        facts |= {"model.path": f"ladder-{cell}", "data.train_max_samples": size / 100}
        for step, value in zip(STEPS, curve, strict=True):
            for metric, source, number in (
                ("eval/pass@1", "all", value),
                ("eval/pass@1", "math__arithmetic", value),
                ("tokens/response", "all", 100.0 * step),
                ("compute/total_flops", "all", step * size),
                ("data/tasks/arithmetic", "all", 2.0 * step),
                ("actor/entropy", "all", 2.0 - step / 30),
                ("actor/grad_norm", "all", 10.0 if step == 30 and seed else 1.0),
            ):
                rows.append({**facts, "step": step, "data_source": source, "metric": metric, "value": number})
    return pd.DataFrame(rows)


def evals(answers: dict[tuple[str, int, str, int], str], cell: str = "small", run: str = "a") -> pd.DataFrame:
    """Rows as `rlkit.read_evals` gives them: (task, step) to responses, `1` right and anything else wrong."""
    rows = []
    for (name, step, task, seed), text in answers.items():
        for i, mark in enumerate(text):
            rows.append(
                {"run": f"{name}-{seed}", "cell": name, "seed": seed, "step": step, "task_id": task, "sample": i,
                 "response": mark, "correct": mark == "1", "data_source": "math", "model.path": f"ladder-{name}",
                 "parameters_non_embedding": 1e4, "held_out": False}
            )  # fmt: skip
    return pd.DataFrame(rows).astype({"correct": "boolean"})


def test_stability_tells_spread_falls_spikes_and_entropy():
    df = metrics({("large", 0): [0.1, 0.5, 0.4, 0.6], ("large", 1): [0.1, 0.3, 0.3, 0.4],
                  ("small", 0): [0.1, 0.2, 0.2, 0.2]})  # fmt: skip
    table = measures.stability(df).set_index("cell")
    assert list(table.index) == ["small", "large"]  # smallest model first
    large = table.loc["large"]
    assert large["pass@1"] == pytest.approx(0.5) and large["spread"] == pytest.approx(
        np.std([0.6, 0.4], ddof=1)
    )
    assert large["largest_fall"] == pytest.approx((0.1 + 0.0) / 2)
    assert large["spikes"] == pytest.approx((0 + 1 / 4) / 2) and large["entropy_kept"] == pytest.approx(0.5)
    assert np.isnan(table.loc["small", "spread"]) and table.loc["small", "runs"] == 1


def test_what_a_level_needs_is_read_off_the_curve():
    df = metrics({("small", 0): [0.0, 0.2, 0.4, 0.4], ("small", 1): [0.0, 0.1, 0.2, 0.3]})
    table = measures.needed(df, "tokens/response", [0.1, 0.35, 0.9]).set_index("level")
    assert table.loc[0.1, "tokens/response"] == pytest.approx((500 + 1000) / 2)
    assert (table.loc[0.1, "low"], table.loc[0.1, "high"]) == pytest.approx((500, 1000))
    assert table.loc[0.35, "tokens/response"] == pytest.approx(1750) and table.loc[0.35, "reached"] == 1
    assert np.isnan(table.loc[0.9, "tokens/response"]) and table.loc[0.9, "reached"] == 0
    above = metrics({("small", 0): [0.5, 0.6, 0.7, 0.8]})
    assert measures.needed(above, "step", [0.4])["step"].tolist() == [0.0]


def test_the_minimum_data_of_a_domain_counts_its_own_tasks():
    df = metrics({("small", 0): [0.2, 0.4, 0.6, 0.6], ("large", 0): [0.2, 0.2, 0.3, 0.4]})
    table = measures.needed_per_domain(df, share=0.5).set_index("cell")
    assert table.loc["small", "level"] == pytest.approx(0.4) and table.loc["small", "tasks"] == pytest.approx(
        20
    )
    assert table.loc["large", "tasks"] == pytest.approx(60)
    assert set(table["data_source"]) == {"math__arithmetic"}
    few = measures.needed_per_domain(df.assign(tasks=3.0)).set_index(
        "cell"
    )  # of three problems such a gain is chance
    assert few["tasks"].isna().all() and not few["reached"].any()
    assert measures.needed_per_domain(df.assign(tasks=300.0))["tasks"].notna().all()
    with pytest.raises(UserError, match="source of its own"):
        measures.needed_per_domain(df[df["metric"] != "data/tasks/arithmetic"])


def test_marginal_returns_pair_the_problems():
    rows = {}
    for task, (low, high) in enumerate([("00", "01"), ("01", "11"), ("11", "11")]):
        rows |= {("small", 30, f"t{task}", 0): low, ("large", 30, f"t{task}", 0): high}
    df = metrics({("small", 0): [0, 0, 0, 0.5], ("large", 0): [0, 0, 0, 0.8]})
    (row,) = measures.marginal_returns(evals(rows), df, "data.train_max_samples").to_dict("records")
    assert (row["from"], row["to"], row["problems"]) == (100, 1000, 3)
    assert row["change"] == pytest.approx(1 / 3)
    assert row["per_doubling"] == pytest.approx(1 / 3 / np.log2(10))
    assert 0 <= row["low"] < row["per_doubling"] < row["high"] <= 0.5 / np.log2(10) + 1e-9
    with pytest.raises(UserError, match="has one value"):
        measures.marginal_returns(
            evals(rows), df.assign(**{"data.train_max_samples": 5}), "data.train_max_samples"
        )


def test_equal_compute_takes_the_last_evaluation_that_all_could_afford():
    df = metrics({("small", 0): [0.1, 0.2, 0.3, 0.4], ("large", 0): [0.2, 0.3, 0.4, 0.5]})
    rows = {(cell, step, "t", 0): "1" if step == 30 else "0" for cell in ("small", "large") for step in STEPS}
    table = measures.at_compute(evals(rows), df, "compute/total_flops").set_index("cell")
    assert set(table["budget"]) == {30 * 1e4}  # all of small's, and none of large's steps after the start
    assert (table.loc["small", "step"], table.loc["large", "step"]) == ("30", "0")
    assert (table.loc["small", "pass@1"], table.loc["large", "pass@1"]) == (1.0, 0.0)


def test_pass_at_k_crosses_where_a_gain_is_lost():
    rows = {}
    for task in range(40):  # before: all problems solved half of the time; after: half of them always
        rows[("small", 0, f"t{task}", 0)] = "10" * 4
        rows[("small", 30, f"t{task}", 0)] = ("1" if task < 24 else "0") * 8
    curves = measures.pass_at_k_ends(evals(rows)).set_index(["when", "k"])["value"]
    assert curves["before"].loc[[1, 2]].tolist() == pytest.approx([0.5, 1 - 6 / 28])
    assert curves["after"].loc[[1, 8]].tolist() == pytest.approx([0.6, 0.6])
    (row,) = measures.crossing(evals(rows)).to_dict("records")
    share = 0.1 / (0.1 + (1 - 6 / 28) - 0.6)
    assert row["k"] == pytest.approx(2**share) and row["low"] <= row["k"] <= row["high"]
    assert row["gain_at_1"] == pytest.approx(0.1) and row["gain_at_largest_k"] == pytest.approx(-0.4)
    assert 0.5 < row["crosses"] <= 1 and row["largest_k"] == 8
    better = {key: "1111" if key[1] else "1000" for key in rows}
    assert np.isnan(measures.crossing(evals(better))["k"].item())


def test_seeds_are_averaged_and_not_pooled():
    rows = {}
    for seed, after in ((0, "1111"), (1, "0000")):
        rows |= {("small", 0, "t", seed): "1000", ("small", 30, "t", seed): after}
    curves = measures.pass_at_k_ends(evals(rows)).set_index(["when", "k"])["value"]
    assert curves["after"].tolist() == [0.5, 0.5, 0.5] and curves["before"].loc[4] == 1.0


def test_diversity_is_that_of_a_runs_samples():
    rows = {("small", 0, "t", 0): "1abc", ("small", 30, "t", 0): "1111",
            ("small", 0, "u", 0): "aabb", ("small", 30, "u", 0): "aaab"}  # fmt: skip
    table = measures.diversity(evals(rows)).set_index("when")
    assert table["distinct"].to_dict() == {"before": (1 + 0.5) / 2, "after": (0.25 + 0.5) / 2}
    assert table["solved"].to_dict() == {"before": 0.5, "after": 0.5}


def test_figures_keep_what_they_draw_and_the_looks_of_their_runs():
    df = metrics({("small", 0): [0.0, 0.2, 0.4, 0.4], ("large", 0): [0.1, 0.3, 0.5, 0.6]})
    need = measures.needed(df, "tokens/response", [0.15, 0.3])
    drawing = contrasts.against(need, "level", "tokens/response", by="cell")
    assert len(drawing.table) == 4 and {r["run"] for r in drawing.sources["runs"]} == {"small-0", "large-0"}
    curves = contrasts.domain_curves(df)
    (ax,) = curves.figure.axes
    assert ax.get_title() == "math: arithmetic" and len(curves.table) == 8
    drawn = drawing.figure.axes[0].containers
    thick = {line.get_label(): line.get_color() for line in ax.lines if not line.get_label().startswith("_")}
    assert {c.get_label(): c.lines[0].get_color() for c in drawn} == thick
    with pytest.raises(UserError, match="nothing to draw"):
        contrasts.against(need.assign(**{"tokens/response": np.nan}), "level", "tokens/response")
