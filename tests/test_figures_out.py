"""The folder that a paper's figures are written to."""

import pytest
from study_folder import write_study

from rlkit.errors import UserError
from rlkit.figures import study as figures_of_study


def test_figures_of_another_study_are_not_replaced_and_ones_own_are(tmp_path, monkeypatch):
    one = {"before_after": figures_of_study.FIGURES["before_after"]}
    monkeypatch.setattr(figures_of_study, "FIGURES", one)
    first, out = write_study(tmp_path / "outputs"), tmp_path / "paper"
    figures_of_study.render(first, out=out)
    (out / "before_after.tex").write_text("old")
    figures_of_study.render(first, out=out)  # a study's own figures are made anew
    table = (out / "before_after.tex").read_text()
    assert "ladder-30k" in table

    record = out / "before_after.json"
    record.write_text(record.read_text().replace('"study": "sizes"', '"study": "other"'))
    with pytest.raises(UserError, match=r"before_after.json is of other\), .* --out .*paper/sizes"):
        figures_of_study.render(first, out=out)
    assert (out / "before_after.tex").read_text() == table
