"""The tables of what training shows along its curves: numbers worked out by hand."""

# pandas' stubs know less of a frame's cells than the test does:
# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import numpy as np
import pandas as pd
import pytest
from metric_rows import metrics

from rlkit.errors import UserError
from rlkit.figures import runs
from rlkit.measures import learning


def test_stability_tells_spread_falls_spikes_and_entropy():
    df = metrics({("large", 0): [0.1, 0.5, 0.4, 0.6], ("large", 1): [0.1, 0.3, 0.3, 0.4],
                  ("small", 0): [0.1, 0.2, 0.2, 0.2]})  # fmt: skip
    table = learning.stability(df).set_index("cell")
    assert list(table.index) == ["small", "large"]  # smallest model first
    large = table.loc["large"]
    assert large["pass@1"] == pytest.approx(0.5)
    assert large["spread"] == pytest.approx(np.std([0.6, 0.4], ddof=1))
    assert large["largest_fall"] == pytest.approx((0.1 + 0.0) / 2)
    assert large["spikes"] == pytest.approx((0 + 1 / 4) / 2) and large["entropy_kept"] == pytest.approx(0.5)
    assert np.isnan(table.loc["small", "spread"]) and table.loc["small", "runs"] == 1


def test_what_a_level_needs_is_read_off_the_curve():
    df = metrics({("small", 0): [0.0, 0.2, 0.4, 0.4], ("small", 1): [0.0, 0.1, 0.2, 0.3]})
    table = learning.needed(df, "tokens/response", [0.1, 0.35, 0.9]).set_index("level")
    assert table.loc[0.1, "tokens/response"] == pytest.approx((500 + 1000) / 2)
    assert (table.loc[0.1, "low"], table.loc[0.1, "high"]) == pytest.approx((500, 1000))
    assert table.loc[0.35, "tokens/response"] == pytest.approx(1750) and table.loc[0.35, "reached"] == 1
    assert np.isnan(table.loc[0.9, "tokens/response"]) and table.loc[0.9, "reached"] == 0
    above = metrics({("small", 0): [0.5, 0.6, 0.7, 0.8]})
    assert learning.needed(above, "step", [0.4])["step"].tolist() == [0.0]


def test_levels_lie_above_the_start_of_each_model_and_a_point_of_some_runs_is_hollow():
    df = metrics({("small", 0): [0.1, 0.2, 0.3, 0.4], ("small", 1): [0.1, 0.1, 0.2, 0.2],
                  ("large", 0): [0.5, 0.6, 0.7, 0.8]})  # fmt: skip
    table = learning.needed(df, "step", 2)
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
        learning.needed(metrics({("small", 0): [0.4, 0.4, 0.3, 0.4]}), "step", 3)


def test_the_minimum_data_of_a_domain_counts_its_own_tasks():
    df = metrics({("small", 0): [0.2, 0.4, 0.6, 0.6], ("large", 0): [0.2, 0.2, 0.3, 0.4]})
    evals = pd.DataFrame({"data_source": "math__arithmetic", "task_id": range(300)})
    table = learning.needed_per_domain(df, evals).set_index("cell")
    assert table["level"].tolist() == pytest.approx([0.4, 0.4])
    assert table["tasks"].to_dict() == pytest.approx({"small": 20, "large": 60})
    assert set(table["data_source"]) == {"math__arithmetic"}
    few = learning.needed_per_domain(df, evals[:3])  # of three problems such a gain is chance
    assert few["tasks"].isna().all() and not few["reached"].any()
    with pytest.raises(UserError, match="source of its own"):
        learning.needed_per_domain(df[df["metric"] != "data/tasks/arithmetic"], evals)


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
    need = learning.needed(df, "tokens/response", [0.15, 0.3])
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
