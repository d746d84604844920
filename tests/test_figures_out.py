"""The folder that a paper's figures are written to."""

import re

import numpy as np
import pandas as pd
from study_folder import write_study

from rlkit import figures
from rlkit.figures import study as figures_of_study


def test_a_table_has_values_with_their_intervals_in_one_cell():
    frame = pd.DataFrame(
        {"cell": ["a<b", "c"], "difference": [0.0991, -0.25], "low": [0.08, -0.3], "high": [0.12, np.nan],
         "low_seeds": [np.nan, -0.4], "high_seeds": [np.nan, 0.1], "tokens": [1234.5, 0.0001], "runs": [2, 3000]}
    )  # fmt: skip
    html = figures.table(frame).to_html()
    assert re.findall(r"<th[^>]*>(.*?)</th>", html) == ["cell", "difference", "tokens", "runs", "seeds"]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert cells[:5] == ["a&lt;b", "0.099 [0.080, 0.120]", "1,234", "2", "–"]
    assert cells[5:] == ["c", "-0.250 [-0.300, –]", "1.00e-04", "3,000", "-0.250 [-0.400, 0.100]"]
    shown = figures.table(frame, "tokens", "difference").to_html()
    assert "1,234" in shown and "1.00e-04" in shown and "runs" not in shown


def test_the_main_figure_has_lettered_panels_at_the_text_width_and_is_wide_in_a_column(tmp_path):
    study = write_study(tmp_path / "outputs")
    data = figures_of_study.StudyData(study)
    drawing = dict(figures_of_study.draw(data, "icml", ["main"]))["main"]
    titles = [ax.get_title(loc="left") for ax in drawing.figure.axes]
    assert [t for t in titles if t] == [
        f"({letter})" for letter in "abcdef"[: drawing.table["panel"].nunique()]
    ]
    assert drawing.figure.get_figwidth() == figures.WIDTHS["icml-text"]
    figures_of_study.render(study, "icml", tmp_path / "paper", only=["main", "before_after"])
    assert {"main.pdf", "before_after.pdf"} <= {path.name for path in (tmp_path / "paper").iterdir()}
    figures_of_study.render(study, "icml", tmp_path / "whole")
    text = (tmp_path / "whole" / "figures.tex").read_text()
    assert text.count("\\begin{figure*}") == 1 and "{whole/main.pdf}" in text
