"""The tables of a study: cells against each other, before against after, along curves; the best split of a budget of
rollouts. Numbers are worked out by hand, or planted."""

# pandas' stubs know less of a frame's cells than the test does:
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from laws_data import answers
from metric_rows import STEPS, metrics
from scipy import stats
from scipy.special import expit
from study_folder import write_study

import rlkit
from rlkit.errors import UserError
from rlkit.figures import runs
from rlkit.figures.study import StudyData, tables
from rlkit.measures import comparisons, summary
from rlkit.measures.fits import at_budgets, rollouts_law
from rlkit.measures.summary import before_after


def evals(answers: dict[tuple[str, int, str, int], str]) -> pd.DataFrame:
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


def test_marginal_returns_pair_the_problems():
    rows = {}
    for task, (low, high) in enumerate([("00", "01"), ("01", "11"), ("11", "11")]):
        rows |= {("small", 30, f"t{task}", 0): low, ("large", 30, f"t{task}", 0): high}
    df = metrics({("small", 0): [0, 0, 0, 0.5], ("large", 0): [0, 0, 0, 0.8]})
    x, by = "data.train_max_samples", "data_source"
    (row,) = comparisons.marginal_returns(evals(rows), df, x, by).to_dict("records")
    assert (row[by], row["from"], row["to"], row["problems"]) == ("math", 100, 1000, 3)
    assert row["change"] == pytest.approx(1 / 3)
    assert row["per_doubling"] == pytest.approx(1 / 3 / np.log2(10))
    assert 0 <= row["low"] < row["per_doubling"] < row["high"] <= 0.5 / np.log2(10) + 1e-9
    for same, told in ((df.assign(**{x: 5}), "has one value"), (df.replace({x: 100}, -1), "is -1 in some runs")):
        with pytest.raises(UserError, match=f"{x} {told}"):
            comparisons.marginal_returns(evals(rows), same, x, by)


def by_variant(table: pd.DataFrame) -> pd.DataFrame:
    """The cells `GRPO, small` … of a table as a study with variants has them."""
    variant, model = (table["cell"].str.split(", ").str[i] for i in (0, 1))
    size = model.map({"small": 1e4, "large": 1e5})
    place = variant.map({"GRPO": 0, "PPO": 1})
    facts = {"model.path": "models/" + model, "parameters_non_embedding": size}
    pairs = zip(variant, model, strict=True)
    factors = [json.dumps({"variant": [v, "GRPO"], "model.path": [m, None]}) for v, m in pairs]
    return table.assign(variant=variant, variant_place=place, factors=factors, **facts)


def test_equal_compute_has_a_budget_for_each_model_and_says_the_step():
    curve = [0.1, 0.2, 0.3, 0.4]
    cells = ("GRPO, small", "PPO, small", "GRPO, large", "PPO, large")
    df = by_variant(metrics({(cell, seed): curve for cell in cells for seed in (0, 1)}))
    flops = df["metric"] == "compute/total_flops"
    df.loc[flops, "value"] *= df["variant"].map({"GRPO": 1, "PPO": 2}) * df["parameters_non_embedding"] / 1e4
    df.loc[flops & (df["cell"] == "PPO, small") & (df["seed"] == 1), "value"] *= 0.8
    keys = itertools.product(cells, STEPS, "t", (0, 1))
    rows = {key: "1" if key[1] >= 20 else "0" for key in keys}
    table = comparisons.at_compute(by_variant(evals(rows)), df, "compute/total_flops")
    assert table["cell"].tolist() == ["GRPO, small", "PPO, small", "GRPO, large", "PPO, large"]
    assert table["budget"].tolist() == [30e4, 30e4, 30e5, 30e5]  # all of GRPO's, of each model its own
    assert table["step"].tolist() == ["30", "10", "30", "10"] and set(table["steps"]) == {30}
    assert table["pass@1"].tolist() == [1.0, 0.0, 1.0, 0.0]
    drawing = runs.ranked(table)
    labels = [text.get_text() for text in drawing.figure.axes[0].get_yticklabels()]
    assert labels[:2] == ["GRPO, small: step 30 of 30", "PPO, small: step 10 of 30"]
    assert drawing.caption == "The budget is 300k for small, 3M for large."
    df.loc[flops & (df["cell"] == "PPO, small") & (df["seed"] == 1), "value"] *= 0.5
    table = comparisons.at_compute(by_variant(evals(rows)), df, "compute/total_flops").set_index("cell")
    assert table.loc["PPO, small", "step"] == "10–30"  # of two seeds
    with pytest.raises(UserError, match="each model of this study has one"):
        comparisons.at_compute(by_variant(evals(rows)), df[df["variant"] == "PPO"], "compute/total_flops")


def both_ends(rates: dict[tuple[str, int], float], problems: int) -> dict[tuple[str, int, str, int], str]:
    """An answer of cells and seeds to each problem: none is right before training, and the rate of them after."""
    rows = {}
    for ((cell, seed), rate), task in itertools.product(rates.items(), range(problems)):
        rows[cell, 30, f"t{task:02}", seed] = "1" if (task * 37) % problems < round(problems * rate) else "0"
        rows[cell, 0, f"t{task:02}", seed] = "0"
    return rows


def answers_of_variants(seeds: int) -> pd.DataFrame:
    """Final answers of GRPO and of PPO, whose runs differ, to 30 problems, with different numbers of seeds."""
    grpo = {("GRPO, small", seed): 0.5 + 0.1 * seed for seed in range(seeds)}
    ppo = {("PPO, small", seed): 0.6 + 0.1 * seed for seed in range(seeds + 1)}
    return by_variant(evals(both_ends(grpo | ppo, problems=30)))


def test_differences_pair_the_problems_and_resample_seeds_where_there_are_some():
    table = answers_of_variants(seeds=2)
    (row,) = comparisons.differences(table).to_dict("records")
    last = table[table["step"] == 30].astype({"correct": float})
    means = last.groupby(["variant", "run", "task_id"])["correct"].mean().unstack("task_id")
    grpo, ppo = means.loc["GRPO"].to_numpy(), means.loc["PPO"].to_numpy()
    pairs = ppo.mean(axis=0) - grpo.mean(axis=0)
    assert row["difference"] == pytest.approx(pairs.mean())
    named = [row[c] for c in ("factor", "cell", "value", "baseline")]
    assert named == ["variant", "PPO, small", "PPO", "GRPO"]
    variances = [rates.mean(axis=1).var(ddof=1) for rates in (ppo, grpo)]
    assert row["spread"] == pytest.approx(np.sqrt(np.mean(variances)))
    assert (row["problems"], row["seeds"], row["baseline_seeds"]) == (30, 3, 2)
    rng = np.random.default_rng(1)
    over_problems = [pairs[rng.integers(30, size=30)].mean() for _ in range(4000)]
    low, high = np.quantile(over_problems, [0.025, 0.975])
    assert (row["low"], row["high"]) == pytest.approx((low, high), abs=0.01)
    terms = [(variances[0] / 3, 2), (variances[1] / 2, 1), (np.var(over_problems), 29)]
    total = sum(v for v, _ in terms)
    freedom = total**2 / sum(v**2 / df for v, df in terms)
    both = stats.t.interval(0.95, freedom, row["difference"], total**0.5)
    assert (row["low_seeds"], row["high_seeds"]) == pytest.approx(both, rel=0.05)


def test_differences_pair_the_seeds_that_both_cells_have():
    rates = {("GRPO", 0): 0.2, ("PPO", 0): 0.3, ("GRPO", 1): 0.6, ("PPO", 1): 0.7, ("GRPO", 2): 0.4, ("PPO", 2): 0.52}
    rows = both_ends({(f"{variant}, small", seed): rate for (variant, seed), rate in rates.items()}, problems=100)
    (row,) = comparisons.differences(by_variant(evals(rows))).to_dict("records")
    apart = np.array([0.1, 0.1, 0.12])  # of the seeds, which differ by much more than that
    assert row["spread"] == pytest.approx(apart.std(ddof=1) / np.sqrt(2))
    assert 0 < row["low_seeds"] < row["difference"] < row["high_seeds"] < 0.22
    other = {(cell, *place, seed + 5 * ("PPO" in cell)): told for (cell, *place, seed), told in rows.items()}
    (row,) = comparisons.differences(by_variant(evals(other))).to_dict("records")
    assert row["low_seeds"] < -0.2 and row["spread"] == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_seed_has_no_interval_over_seeds_as_figure_summary_and_table_say(seeds, tmp_path):
    table, several = answers_of_variants(seeds), seeds > 1
    found = comparisons.differences(table)
    assert (found[["low_seeds", "high_seeds"]].notna() == several).all(axis=None) and found["low"].notna().all()
    drawing = runs.differences(found)[""]
    counts = f"The baseline is GRPO. Seeds a cell: {seeds} to {seeds + 1}. "
    assert drawing.caption.startswith(counts) and ("One seed says nothing" in drawing.caption) != several
    labels = drawing.figure.axes[0].get_legend_handles_labels()[1]
    assert labels == ["95 % over seeds and problems"] * several + ["95 % over problems"]
    points = pd.DataFrame({"parameters_non_embedding": [1e4], "seed": [0], "cell": ["a"]})
    study = StudyData(write_study(tmp_path))
    text = summary.write(tmp_path, summary.before_after(table), points, differences=found)
    assert "final pass@1 less that of GRPO, paired by problem" in text
    (line,) = [line for line in text.splitlines() if line.startswith("  PPO, small  +")]
    row = found.iloc[0]
    over_problems = f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
    assert line.startswith(f"  PPO, small  {over_problems}; ")
    over_seeds = f"[{row['low_seeds']:+.3f}, {row['high_seeds']:+.3f}]"
    assert line.endswith(over_seeds if several else "none over seeds, of which a cell has one")
    assert "less that of" not in summary.write(tmp_path, summary.before_after(table), points)
    study.__dict__["evals"] = table
    text = tables(study)["differences"]
    row = next(line for line in text.splitlines() if "GRPO" in line and "scriptsize" in line)
    first, second = row.removesuffix("\\\\").split(" & ")[-2:]
    assert "[" in first and ("[" in second if several else second.strip() == "--")
    assert "less the baseline's" in text


def test_differences_need_a_baseline_and_another_value():
    table = answers_of_variants(seeds=2)
    with pytest.raises(UserError, match="fewer than two"):
        comparisons.differences(table.drop(columns="factors"))
    with pytest.raises(UserError, match="beside its baseline of variant"):
        comparisons.differences(table[table["variant"] == "PPO"])
    elsewhere = table.assign(task_id=table["task_id"].where(table["variant"] == "GRPO", "other-" + table["task_id"]))
    with pytest.raises(UserError, match="No cell was evaluated beside its baseline of variant on the same problems"):
        comparisons.differences(elsewhere)
    by_hand = table[table["variant"] == "PPO"].assign(cell="by hand", variant=None, factors=None)
    both = pd.concat([table, by_hand.assign(run="by hand, " + by_hand["run"])], ignore_index=True)
    pd.testing.assert_frame_equal(comparisons.differences(both), comparisons.differences(table))
    turned = comparisons.differences(table.assign(factors=table["factors"].str.replace('"GRPO"]', '"PPO"]')))
    assert turned["difference"].item() == pytest.approx(-comparisons.differences(table)["difference"].item())


def test_every_factor_of_a_grid_is_compared_with_its_baseline_all_else_equal():
    grid = itertools.product((0.001, 0.01), (0.2, 0.4))
    rates = {(lr, clip): 0.2 + 0.3 * (lr == 0.01) + 0.1 * (clip == 0.4) for lr, clip in grid}
    rows, factors = {}, {}
    for (lr, clip), rate in rates.items():
        cell = f"optim.lr = {lr}, clip_ratio_high = {clip}"
        factors[cell] = json.dumps({"actor.optim.lr": [lr, 0.001], "actor.clip_ratio_high": [clip, 0.4]})
        rows |= both_ends({(cell, seed): rate for seed in range(2)}, problems=40)
    table = evals(rows)
    found = comparisons.differences(table.assign(factors=table["cell"].map(factors), **{"model.path": "m"}))
    assert found["factor"].tolist() == ["actor.optim.lr"] * 2 + ["actor.clip_ratio_high"] * 2
    assert set(found["baseline"]) == {"optim.lr = 0.001", "clip_ratio_high = 0.4"}
    assert found["difference"].tolist() == pytest.approx([0.3, 0.3, -0.1, -0.1])
    assert set(runs.differences(found)) == {"optim.lr", "clip_ratio_high"}


def test_seeds_are_averaged_and_not_pooled():
    """Pooled samples would give the pass@k of a mixture of policies, and k up to the samples of all."""
    rows = {}
    for seed, after in ((0, "1111"), (1, "0000")):
        rows |= {("small", 0, "t", seed): "1000", ("small", 30, "t", seed): after}
    curves = comparisons.pass_at_k_ends(evals(rows)).set_index(["when", "k"])["value"]
    assert sorted(set(curves.index.get_level_values("k"))) == [1, 2, 4]
    assert curves["after"].tolist() == [0.5, 0.5, 0.5] and curves["before"].loc[4] == 1.0


def test_pass_at_k_crosses_where_a_gain_is_lost_and_diversity_is_that_of_a_runs_samples():
    rows = {("small", 0, "t", 0): "1abc", ("small", 30, "t", 0): "1111",
            ("small", 0, "u", 0): "aabb", ("small", 30, "u", 0): "aaab"}  # fmt: skip
    table = comparisons.diversity(evals(rows)).set_index("when")
    assert table["distinct"].to_dict() == {"before": (1 + 0.5) / 2, "after": (0.25 + 0.5) / 2}
    assert table["solved"].to_dict() == {"before": 0.5, "after": 0.5}
    rows = {}
    for task in range(40):  # before: all problems solved half of the time; after: half of them always
        rows[("small", 0, f"t{task}", 0)] = "10" * 4
        rows[("small", 30, f"t{task}", 0)] = ("1" if task < 24 else "0") * 8
    curves = comparisons.pass_at_k_ends(evals(rows)).set_index(["when", "k"])["value"]
    assert curves["before"].loc[[1, 2]].tolist() == pytest.approx([0.5, 1 - 6 / 28])
    assert curves["after"].loc[[1, 8]].tolist() == pytest.approx([0.6, 0.6])
    (row,) = comparisons.crossing(evals(rows)).to_dict("records")
    share = 0.1 / (0.1 + (1 - 6 / 28) - 0.6)
    assert row["k"] == pytest.approx(2**share) and row["low"] <= row["k"] <= row["high"]
    assert row["gain_at_1"] == pytest.approx(0.1) and row["gain_at_largest_k"] == pytest.approx(-0.4)
    assert 0.5 < row["crosses"] <= 1 and row["largest_k"] == 8
    better = {key: "1111" if key[1] else "1000" for key in rows}
    assert np.isnan(comparisons.crossing(evals(better))["k"].item())


def two_ends(after="1") -> pd.DataFrame:
    """Ten problems with half of the samples right before training, and all of them after."""
    ends = {0: "10" * 4, 10: after * (8 // len(after))}
    return evals({("small", step, f"t{task}", 0): ends[step] for step in ends for task in range(10)})


def test_one_problem_without_its_grades_does_not_shorten_the_curve_and_pass_at_1_has_one_interval():
    table = two_ends()
    table.loc[(table["task_id"] == "t0") & (table["sample"] > 0) & (table["step"] == 10), "correct"] = None
    table = comparisons.pass_at_k_ends(table)
    assert sorted(set(table["k"])) == [1, 2, 4, 8] and set(table["problems"]) == {9}
    table = two_ends(after="1110")
    after = comparisons.pass_at_k_ends(table).query("k == 1 and when == 'after'").iloc[0]
    same = before_after(table).query("when == 'after'").iloc[0]
    assert (after["low"], after["high"]) == (same["low"], same["high"]) and after["low"] < 0.8
    for measure in (comparisons.pass_at_k_ends, comparisons.crossing):  # without any grade at an end
        with pytest.raises(UserError, match="graded sample both before and after"):
            measure(two_ends().assign(correct=lambda t: t["correct"].mask(t["step"] == 10)))


def test_stability_tells_spread_falls_spikes_and_entropy():
    df = metrics({("large", 0): [0.1, 0.5, 0.4, 0.6], ("large", 1): [0.1, 0.3, 0.3, 0.4],
                  ("small", 0): [0.1, 0.2, 0.2, 0.2]})  # fmt: skip
    table = comparisons.stability(df).set_index("cell")
    assert list(table.index) == ["small", "large"]  # smallest model first
    large = table.loc["large"]
    assert large["pass@1"] == pytest.approx(0.5)
    assert large["spread"] == pytest.approx(np.std([0.6, 0.4], ddof=1))
    assert large["largest_fall"] == pytest.approx((0.1 + 0.0) / 2)
    assert large["spikes"] == pytest.approx((0 + 1 / 4) / 2) and large["entropy_kept"] == pytest.approx(0.5)
    assert np.isnan(table.loc["small", "spread"]) and table.loc["small", "runs"] == 1


def test_what_a_level_needs_is_read_off_the_curve():
    df = metrics({("small", 0): [0.0, 0.2, 0.4, 0.4], ("small", 1): [0.0, 0.1, 0.2, 0.3]})
    table = comparisons.needed(df, "tokens/response", [0.1, 0.35, 0.9]).set_index("level")
    assert table.loc[0.1, "tokens/response"] == pytest.approx((500 + 1000) / 2)
    assert (table.loc[0.1, "low"], table.loc[0.1, "high"]) == pytest.approx((500, 1000))
    assert table.loc[0.35, "tokens/response"] == pytest.approx(1750) and table.loc[0.35, "reached"] == 1
    assert np.isnan(table.loc[0.9, "tokens/response"]) and table.loc[0.9, "reached"] == 0
    above = metrics({("small", 0): [0.5, 0.6, 0.7, 0.8]})
    assert comparisons.needed(above, "step", [0.4])["step"].tolist() == [0.0]


def test_levels_lie_above_the_start_of_each_model_and_a_point_of_some_runs_is_hollow():
    df = metrics({("small", 0): [0.1, 0.2, 0.3, 0.4], ("small", 1): [0.1, 0.1, 0.2, 0.2],
                  ("large", 0): [0.5, 0.6, 0.7, 0.8]})  # fmt: skip
    table = comparisons.needed(df, "step", 2)
    assert table["level"].tolist() == pytest.approx([0.2, 0.3, 0.6, 0.7])
    # of small: (10 + 20) / 2, then one run's
    assert table["step"].tolist() == pytest.approx([15, 20, 10, 20])
    assert table["reached"].tolist() == [2, 1, 1, 1] and table["runs"].tolist() == [2, 2, 1, 1]
    (ax,) = runs.needed(table, "step").figure.axes
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [y for line in hollow for y in line.get_ydata()] == pytest.approx([0.3])
    assert "reached by some of the runs" in ax.get_legend_handles_labels()[1]
    (ax,) = runs.against(table[table["cell"] == "large"], "level", "step", by="cell").figure.axes
    assert ax.get_legend_handles_labels()[1] == ["large"]
    with pytest.raises(UserError, match="No run rises above where its model starts"):
        comparisons.needed(metrics({("small", 0): [0.4, 0.4, 0.3, 0.4]}), "step", 3)


def test_the_minimum_data_of_a_domain_counts_its_own_tasks():
    df = metrics({("small", 0): [0.2, 0.4, 0.6, 0.6], ("large", 0): [0.2, 0.2, 0.3, 0.4]})
    evals = pd.DataFrame({"data_source": "math__arithmetic", "task_id": range(300)})
    table = comparisons.needed_per_domain(df, evals).set_index("cell")
    assert table["level"].tolist() == pytest.approx([0.4, 0.4])
    assert table["tasks"].to_dict() == pytest.approx({"small": 20, "large": 60})
    assert set(table["data_source"]) == {"math__arithmetic"}
    few = comparisons.needed_per_domain(df, evals[:3])  # of three problems such a gain is chance
    assert few["tasks"].isna().all() and not few["reached"].any()
    with pytest.raises(UserError, match="source of its own"):
        comparisons.needed_per_domain(df[df["metric"] != "data/tasks/arithmetic"], evals)


def test_long_names_of_domains_stay_within_the_figure():
    one = metrics({("small", 0): [0.0, 0.2, 0.4, 0.4]})
    names = ("logic__zebra_puzzle_generated", "simulation__codeio_generated", "stem__units", "table__made")
    parts = [one.assign(data_source=one["data_source"].replace("math__arithmetic", name)) for name in names]
    figure = runs.domain_curves(pd.concat(parts)).figure
    figure.canvas.draw()
    titles = [ax.title for ax in figure.axes]
    assert {t.get_text().replace("\n", " ") for t in titles} >= {"simulation: codeio generated"}
    boxes = [t.get_window_extent() for t in titles]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_figures_keep_what_they_draw_and_the_looks_of_their_runs():
    df = metrics({("small", 0): [0.0, 0.2, 0.4, 0.4], ("large", 0): [0.1, 0.3, 0.5, 0.6]})
    need = comparisons.needed(df, "tokens/response", [0.15, 0.3])
    drawing = runs.needed(need, "tokens/response")
    assert len(drawing.table) == 4 and {r["run"] for r in drawing.sources["runs"]} == {"small-0", "large-0"}
    other = df.assign(data_source=df["data_source"].replace("math__arithmetic", "logic__doors"))
    curves = runs.domain_curves(pd.concat([df, other]))
    ax = curves.figure.axes[1]
    assert ax.get_title() == "math: arithmetic" and len(curves.table) == 2 * 8
    drawn = [line for line in drawing.figure.axes[0].lines if not line.get_label().startswith("_")]
    thick = {line.get_label(): line.get_color() for line in ax.lines if not line.get_label().startswith("_")}
    assert {line.get_label(): line.get_color() for line in drawn} == thick
    with pytest.raises(UserError, match="one domain and no suite"):
        runs.domain_curves(df)
    with pytest.raises(UserError, match="nothing to compare"):
        runs.needed(need.assign(**{"tokens/response": np.nan}), "tokens/response")


TOTAL, PROBLEMS = 65_536, 150


def study(seed: int = 0, exponent: float = 0.3, n=(2, 4, 8, 16, 32), prompts=(16, 64), seeds: int = 2):
    """Samples and facts of runs whose pass@1 is best at n* = 8·(C/8192)^exponent, and 16 prompts a little better."""
    rng, parts, facts = np.random.default_rng(seed), [], []
    hard = rng.normal(0, 1, PROBLEMS)
    for rollouts, count, run in itertools.product(n, prompts, range(seeds)):
        name, luck = f"{rollouts}-{count}-{run}", rng.normal(0, 0.05)
        facts.append({"run": name, "rollout.n": rollouts, "data.train_batch_size": count})
        last = TOTAL // (rollouts * count)
        for step in sorted({0, *(last * i // 8 for i in range(1, 9))}):
            spent = max(step * rollouts * count, 1)
            off = np.log(rollouts / 8) - exponent * np.log(spent / 8192)
            logit = 0.5 * np.log(spent / 8192) - 0.4 * off**2 - 0.1 * (count == 64) + luck + hard
            right = rng.random((PROBLEMS, 2)) < expit(logit)[:, None]
            parts.append(answers(right, run=name, cell=f"{rollouts}-{count}", step=step))
    return pd.concat(parts, ignore_index=True), pd.DataFrame(facts)


@pytest.fixture(scope="module")
def planted():
    return study()


def test_every_split_of_a_budget_has_a_row_and_one_is_best(planted):
    table = at_budgets(*planted, budgets=4)
    assert len(table) == 4 * 10 and (table["runs"] == 2).all()
    assert table.groupby("budget")["best"].sum().tolist() == [1, 1, 1, 1]
    spent = table["rollout.n"] * table["data.train_batch_size"] * table["steps"]
    np.testing.assert_allclose(spent, table["budget"])
    assert table["budget"].max() == pytest.approx(TOTAL)
    assert table.query("best")["data.train_batch_size"].mode().iloc[0] == 16


def test_the_law_of_the_best_rollouts_is_found_with_its_interval(planted):
    fit = rollouts_law(*planted, bootstrap=300)
    rising = {name: (-high, -low) for name, (low, high) in fit.interval().items()}["alpha"]
    assert rising[0] < 0.3 < rising[1] and rising[0] > 0
    band = fit.predict({"budget": [8192.0]}, band="confidence").iloc[0]
    assert band["low"] < 8 < band["high"] and band["high"] / band["low"] < 3
    assert "over 10 splits' seeds and 150 problems" in " ".join(fit.warnings)


def test_a_problem_that_was_not_graded_in_one_run_is_left_out_there(planted):
    evals, df = planted
    lost = (evals["run"] == "2-16-0") & (evals["task_id"] == 3)
    broken = evals.assign(correct=evals["correct"].astype(object).mask(lost, None))
    whole, partly = at_budgets(evals, df), at_budgets(broken, df)
    assert partly["pass@1"].notna().all() and partly["best"].tolist() == whole["best"].tolist()
    np.testing.assert_allclose(partly["pass@1"], whole["pass@1"], atol=0.02)
    fits = [rollouts_law(rows, df, bootstrap=9).params["alpha"] for rows in (evals, broken)]
    assert fits[0] == pytest.approx(fits[1], abs=0.05)


def test_a_best_value_at_the_edge_is_said_and_runs_without_a_comparison_are_refused(planted):
    fit = rollouts_law(*study(n=(8, 16, 32), prompts=(16,)), bootstrap=50)
    assert any("the least or largest tried" in text for text in fit.warnings)
    with pytest.raises(UserError, match="The best rollout.n is 16 at every budget"):
        rollouts_law(*study(n=(16, 32, 64), prompts=(16,), exponent=0.1))
    evals, df = planted
    with pytest.raises(UserError, match="needs three values of it or more, and these runs have 2"):
        at_budgets(evals, df[df["rollout.n"] < 8])
    with pytest.raises(UserError, match="no budget in common"):
        at_budgets(evals[evals["step"] == 0], df)


def test_a_plan_splits_a_budget_by_the_law(planted, tmp_path):
    fit = rollouts_law(*planted, bootstrap=300)
    fit.to_json(tmp_path / "rollouts.json")
    result = rlkit.plan({"fit": str(tmp_path / "rollouts.json"), "prompts": 32, "budget": [8192, 262_144]})
    row = result.allocation.iloc[0]
    assert row["rollout.n"] == pytest.approx(fit.predict({"budget": [8192.0]}).iloc[0])
    assert row["low"] < row["rollout.n"] < row["high"]
    assert row["steps"] == pytest.approx(8192 / (32 * round(row["rollout.n"])))
    text = result.summary()
    assert "rollouts a prompt" in text and "! budget is 8.19e+03 to 2.62e+05 here, and the fit saw" in text
    falling = {"law": "power", "params": {"A": 300, "alpha": 0.45}, "prompts": 16, "budget": [1e6]}
    assert "A group of fewer than 2 rollouts has nothing to compare" in rlkit.plan(falling).summary()
    with pytest.raises(UserError, match="a law of one column, the budget in rollouts"):
        rlkit.plan({"law": "chinchilla", "params": {"E": 1, "A": 1, "alpha": 1, "B": 1, "beta": 1},
                    "prompts": 8, "budget": [1e4]})  # fmt: skip
