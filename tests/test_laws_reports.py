"""What a fit says, writes and draws; the command line; and the smaller tools of the room."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from cases import table
from laws_data import CHINCHILLA, curve, planted, scattered
from typer.testing import CliRunner

import rlkit
from rlkit.cli import app
from rlkit.errors import UserError
from rlkit.laws.report import latex_number, symbol


def test_the_summary_states_what_decided_the_fit():
    df = scattered()
    options = {"delta": 1e-3, "exclude": df["loss"].rank() > 235, "bootstrap": 50, "resample": "case"}
    text = rlkit.fit(df, "chinchilla", y="loss", **options).summary()
    for part in (
        "arXiv 2203.15556", "235 of 240 rows", "Huber, delta = 0.001, summed, residuals in ln loss",
        "exclude: a mask of rows (5 rows)", "starts reached", "case bootstrap (50 draws, 235 units)",
        "AIC = 2k - 2·ln L", "! ",
    ):  # fmt: skip
        assert part in text, part
    assert all(p in text for p in CHINCHILLA)


def test_json_holds_everything_and_no_number_json_does_not_know(tmp_path):
    df = curve("hardly", 1)
    fit = rlkit.fit(df[df["C"] < 1500].reset_index(drop=True), "sigmoid", y="rate", loss="ls")
    text = fit.to_json(tmp_path / "sub" / "fit.json")
    record = json.loads((tmp_path / "sub" / "fit.json").read_text())
    assert record == json.loads(text)
    assert "NaN" not in text and "Infinity" not in text
    keys = "law params interval draws loss objective starts left_out columns warnings"
    assert set(keys.split()) <= set(record)
    assert record["loss"] == {"name": "ls", "delta": 0.0, "residuals": "linear"}
    assert [p.name for p in tmp_path.joinpath("sub").iterdir()] == ["fit.json"]


def test_latex_is_a_table_of_the_estimates_with_greek_letters_and_3_digits():
    text = rlkit.fit(planted("power", noise=0.05), "power", y="y", loss="ls").to_latex(note="a note")
    assert text.startswith(r"\begin{tabular}{lrr}") and text.endswith(r"\end{tabular}")
    assert re.search(r"^\$\\alpha\$ & \$0\.\d{3,4}\$ & \[\$0\.\d+\$, \$0\.\d+\$\]", text, re.M), text
    assert r"\scriptsize \parbox{0.9\columnwidth}{a note}" in text
    assert latex_number(7.5153) == "$7.52$" and latex_number(123456) == r"$1.23\times 10^{5}$"
    assert latex_number(-np.inf) == r"$-\infty$" and symbol("alpha_N") == r"$\alpha_{\mathrm{N}}$"


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def fitted(df, folder, *options) -> str:
    """What the command says of a fit of the table, and writes into fit.* of the folder."""
    df.to_csv(folder / "points.csv", index=False)
    for suffix in ("json", "tex"):
        result = run("fit", folder / "points.csv", "--out", folder / f"fit.{suffix}", *options)
        assert result.exit_code == 0, result.output
    return result.output


def test_the_command_fits_a_file_from_anywhere(tmp_path):
    rows = scattered().assign(sheet=np.arange(240) // 5)
    df = rows.rename(columns={"N": "Model Size", "D": "Tokens"})
    columns = ["--map", "N=Model Size", "--map", "D=Tokens", "--figure", tmp_path / "fit.png"]
    options = ["exclude={sheet: [3]}", "bootstrap=20"]
    assert "235 of 240 rows" in fitted(df, tmp_path, "--law", "chinchilla", "--y", "loss", *columns, *options)
    own = rlkit.fit(rows, "chinchilla", y="loss", exclude={"sheet": 3})
    assert json.loads((tmp_path / "fit.json").read_text())["params"] == pytest.approx(own.params, rel=1e-4)
    assert (tmp_path / "fit.png").stat().st_size > 5000
    assert r"$\alpha$ & $0." in (tmp_path / "fit.tex").read_text()


@pytest.mark.parametrize(*table("laws_command_refuses"))
def test_the_command_refuses_in_one_sentence(tmp_path, file, message, more):
    planted("power", 20, 0.01).to_csv(tmp_path / "a.csv", index=False)
    result = run("fit", tmp_path / file, "--law", "power", "--y", "y", *more)
    assert isinstance(result.exception, UserError) and message in str(result.exception)


def test_rows_without_a_value_are_left_out_and_counted(tmp_path):
    df = curve("well", 0)
    df.loc[::2, "rate"] = np.nan
    told = fitted(df, tmp_path, "--law", "sigmoid", "--y", "rate", "bootstrap=0")
    assert "20 of 40 rows" in told and "exclude: rate in None (20 rows)" in told


def test_a_fit_of_each_group_is_written_under_its_name(tmp_path):
    rows = pd.concat([curve(name, 0).assign(size=name) for name in ("well", "good")])
    assert "== good ==" in fitted(rows, tmp_path, "--law", "sigmoid", "--y", "rate", "group=size", "bootstrap=0")
    fits = json.loads((tmp_path / "fit.json").read_text())
    assert fits["good"]["n"] == 40 and fits["good"]["params"]["A"] > fits["well"]["params"]["A"]
    assert "well\n\n\\begin{tabular}" in (tmp_path / "fit.tex").read_text()


@pytest.mark.parametrize(*table("laws_tables_of_other_places_are"))
def test_tables_of_other_places_are_read_as_they_are(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8-sig")
    options = ["--law", "power", "--y", "error", "--map", "x=N", "--out", tmp_path / "f.json"]
    found = run("fit", tmp_path / "a.csv", *options)
    assert found.exit_code == 0, found.output
    params = json.loads((tmp_path / "f.json").read_text())["params"]
    assert params == pytest.approx({"A": 3437.3, "alpha": 0.4607}, rel=1e-3)
