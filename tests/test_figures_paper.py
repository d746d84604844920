"""Figures of a study for a paper: exact widths, embedded fonts, no text on text, legible in grey, provenance."""

import itertools
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from study_folder import SIZES, config, write_study
from typer.testing import CliRunner

import rlkit
from rlkit import figures
from rlkit.cli import app
from rlkit.errors import UserError
from rlkit.figures import WIDTHS
from rlkit.figures.catalogue import FIGURES
from rlkit.figures.drawing import cautions
from rlkit.figures.study import StudyData, draw, render, tables
from rlkit.measures.summary import before_after, final, write
from rlkit.results.read import read, read_evals
from rlkit.results.store import RunStore

NOT_VARIED = {"data", "law_of_data", "sft_ratio", "law_of_size_and_steps", "training_law", "frontier"}
NOT_VARIED |= {"law_of_repeats", "law_of_success", "law_of_shares", "law_of_rollouts"}
NOT_VARIED |= {"differences", "equal_compute"}  # a cell a model
VENUES = ("neurips", "acl")  # a text width and the narrowest column
ALL_SIZES = pd.DataFrame({"model.path": list(SIZES), "parameters_non_embedding": list(SIZES.values())})


def drawn(study, name, venue) -> dict[str, figures.Drawing]:
    """The figures of a name by their file's name."""
    return {file: one for file, one in draw(study, venue, [name]) if isinstance(one, figures.Drawing)}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("outputs"))


@pytest.fixture(scope="module")
def data(study):
    """What is read of the study once, for tests that change nothing of it."""
    return StudyData(study, "power")


@pytest.fixture(scope="module")
def rendered(study, tmp_path_factory):
    """The folder of all figures for ACL and the files; those of other venues are drawn below, and few are saved."""
    out = tmp_path_factory.mktemp("acl")
    files, missing, _ = render(study, "acl", out, law="power")
    assert set(missing) == NOT_VARIED
    return out, files


def test_every_figure_is_written_in_every_format_with_its_caption(rendered):
    out, files = rendered
    alone = set(FIGURES) - NOT_VARIED - {"law_of_domains"}
    made = alone | {"sample_efficiency_flops"}  # two costs were logged
    made |= {f"law_of_domains_{model}" for model in list(SIZES)[:-1]}  # the largest is held out
    names = {f"{name}.{kind}" for name in made for kind in ("pdf", "svg", "png", "csv", "json")}
    assert names | {"before_after.tex", "law.tex", "figures.tex"} == {path.name for path in files}
    assert all((out / name).stat().st_size > 20 for name in names)
    for name in alone:
        record = json.loads((out / f"{name}.json").read_text())
        assert record["caption"].startswith(FIGURES[name].caption)


@pytest.mark.parametrize("venue", VENUES)
def test_widths_are_exact_and_fonts_embedded_truetype(study, rendered, venue, tmp_path):
    if venue != "acl":
        render(study, venue, tmp_path, only=("main", "before_after"))
    written = list((rendered[0] if venue == "acl" else tmp_path).glob("*.pdf"))
    assert len(written) >= 2
    for pdf in written:
        content = pdf.read_bytes()
        (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", content)
        width = WIDTHS.get(f"{venue}-text", WIDTHS[venue]) if pdf.stem == "main" else WIDTHS[venue]
        assert float(box) == pytest.approx(width * 72, abs=0.01), pdf.name
        with Image.open(pdf.with_suffix(".png")) as picture:
            assert picture.width == pytest.approx(width * 300, abs=1)
        described = content.count(b"/Type /FontDescriptor")
        assert described >= 1 and content.count(b"/FontFile2") == described, pdf.name
        assert b"/Type3" not in content and b"/FontFile " not in content


def boxes(fig):
    """Every visible text with its box in inches, after layout, but labels of ticks beyond the limits of their axis."""
    FigureCanvasAgg(fig).draw()
    shown = [t for t in fig.findobj(Text) if t.get_visible() and t.get_text().strip()]
    outside = set()
    for ax, place in ((ax, place) for ax in fig.axes for place in (0, 1)):
        axis = (ax.xaxis, ax.yaxis)[place]
        low, high = sorted(axis.get_view_interval())
        labels = axis.get_ticklabels(which="both")
        outside |= {t for t in labels if not low - 1e-12 <= t.get_position()[place] <= high + 1e-12}
    found = [(text.get_text(), text.get_window_extent()) for text in shown if text not in outside]
    return {(text, round(box.x0), round(box.y0)): box for text, box in found}


@pytest.mark.parametrize(("venue", "least"), [("acl", 7), ("neurips", 8)])
def test_no_text_overlaps_or_leaves_the_figure_or_is_too_small(data, venue, least):
    looked_at = 0
    for name, drawing in draw(data, venue):
        if isinstance(drawing, UserError):
            assert name in NOT_VARIED
            continue
        with figures.styled():
            found = boxes(drawing.figure)
        if name == "main":
            titles = [title for ax in drawing.figure.axes if (title := ax.get_title(loc="left"))]
            assert titles == [f"({letter})" for letter in "abcdef"[: drawing.table["panel"].nunique()]]
        if name == "learning_curves":
            sizes = {t.get_fontsize() for t in drawing.figure.findobj(Text) if t.get_text()}
            assert min(sizes) == least and max(sizes) == 9
        width, height = drawing.figure.get_size_inches() * drawing.figure.dpi
        for (text, *_), box in found.items():
            fits = box.x0 > -1 and box.y0 > -1 and box.x1 < width + 1 and box.y1 < height + 1
            assert fits, f"{name}: {text!r} leaves the figure"
        for (a, box), (b, other) in itertools.combinations(found.items(), 2):
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            along = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(across, along) < 1.0, f"{name}: {a[0]!r} overlaps {b[0]!r}"
            looked_at += 1
    assert looked_at > 500


def test_what_a_study_varied_is_drawn(tmp_path):
    runs = []
    for (place, unique), model in itertools.product(enumerate((32, 128, 512)), list(SIZES)[1:3]):
        data = {"train_max_samples": unique, "sft_ratio": 0.1 * place}
        cell = {"cell": f"{model}, {unique}", "variant": str(unique)}
        runs.append((config(model, data=data), SIZES[model] * (place + 1), cell))
    study = StudyData(write_study(tmp_path, runs))
    data = drawn(study, "data", "neurips")["data"].table
    assert sorted(set(data["data.train_max_samples"])) == [32, 128, 512]
    assert (data["low"] <= data["pass@1"]).all()
    ratio = drawn(study, "sft_ratio", "neurips")["sft_ratio"].table
    assert set(ratio["when"]) == {"before", "after"} and len(ratio) == 12
    assert list(drawn(study, "domains", "acl")) == ["domains_ladder-30k", "domains_ladder-100k"]  # by size
    assert set(drawn(study, "transfer", "acl")) == {"transfer_ladder-30k", "transfer_ladder-100k"}
    trained = drawn(study, "training", "acl")  # a mean over sizes would be of none
    assert list(trained) == ["training_ladder-30k", "training_ladder-100k"]
    for name, drawing in trained.items():
        assert {run.split("-grpo")[0] for run in drawing.table["run"]} == {name.removeprefix("training_")}
    laws = drawn(study, "law_of_data", "acl")  # one line through two sizes would be of neither
    assert list(laws) == ["law_of_data_ladder-30k", "law_of_data_ladder-100k"]
    for name, law in laws.items():
        points = law.table[law.table["part"] == "point"]
        assert set(points["model.path"]) == {name.removeprefix("law_of_data_")} and len(points) == 3
    # Sizes that are variants have a line for each value of the grid.
    study.__dict__["metrics"] = study.metrics.assign(variant=study.metrics["model.path"])
    trained = drawn(study, "training", "acl")
    assert list(trained) == ["training_ladder-30k", "training_ladder-100k"]
    for name, drawing in trained.items():
        model = name.removeprefix("training_")
        assert set(drawing.table["cell"]) == {f"{model}, {unique}" for unique in (32, 128, 512)}


@pytest.mark.parametrize("name", ["scaling_law", "learning_curves"])
def test_a_share_is_drawn_between_0_and_1(study, name):
    data = StudyData(study, "power")
    data.__dict__["points"] = data.points.assign(error=[1.0, 0.85, 1.0, 0.8, 0.95, 0.7, 0.9, 0.75])
    drawing = drawn(data, name, "acl")[name]
    low, high = drawing.figure.axes[0].get_ylim()
    assert -0.02 <= low < high <= 1.02
    if name == "scaling_law":
        assert drawing.table["high"].max() > 1.02  # the band itself goes further, and the table says so


def test_training_metrics_are_means_over_runs_with_single_runs_only_where_they_are_few(study):
    def lines(names) -> int:
        data = StudyData(study)
        data.__dict__["metrics"] = data.metrics[data.metrics["cell"].isin(names)]
        return len(drawn(data, "training", "neurips")["training"].figure.axes[0].lines)

    assert lines(list(SIZES)) == 4  # one a size, of eight runs
    assert lines(list(SIZES)[:2]) == 2 + 4


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2), 0 black to 1 white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_curves_are_told_apart_in_grey():
    looks = [figures.look(place) for place in range(24)]
    for one, other in itertools.combinations(looks, 2):
        apart = abs(luminance(one["color"]) - luminance(other["color"])) > 0.05
        assert apart or one["marker"] != other["marker"] or one["linestyle"] != other["linestyle"]
    assert all(luminance(look["color"]) < 0.5 for look in looks), "too pale for white paper"


def test_a_model_keeps_its_look_whatever_else_is_drawn():
    everything, some = figures.looks(ALL_SIZES), figures.looks(ALL_SIZES.iloc[1::2])
    assert all(everything[name] == style for name, style in some.items())
    cells = figures.looks(ALL_SIZES.assign(cell=[f"size {i}" for i in range(4)]), "cell")
    assert list(cells.values()) == list(everything.values())
    variants = ALL_SIZES.assign(variant=list("dcba"), variant_place=range(4))  # a variant a size
    assert list(figures.looks(variants, "variant").values()) == list(everything.values())
    other = figures.looks(pd.DataFrame({"model.path": ["Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-7B"]}))
    assert len({style["color"] for style in other.values()}) == 2
    unlisted, nearest = (figures.looks(pd.DataFrame({"model.path": [name]})) for name in ("m-13B", "m-14B"))
    assert unlisted["m-13B"] == nearest["m-14B"]


def test_a_variant_has_one_colour_in_the_order_of_the_file_and_a_size_one_marker_and_line():
    names, models = ("GRPO", "REINFORCE++", "Dr. GRPO"), {"ladder-30k": 33_000, "ladder-100k": 107_000}
    cells = [
        {"cell": f"{name}, {model}", "variant": name, "variant_place": place, "model.path": model,
         "parameters_non_embedding": size}
        for model, size in models.items() for place, name in enumerate(names)
    ]  # fmt: skip
    table = pd.DataFrame(cells).sample(frac=1, random_state=1)
    found = figures.looks(table, "cell")
    assert list(found) == [row["cell"] for row in cells]
    by_model, by_variant = figures.looks(table), figures.looks(table, "variant")
    assert list(by_variant) == list(names)
    for cell, style in found.items():
        variant, model = cell.split(", ")
        assert style["color"] == by_variant[variant]["color"]
        assert all(style[key] == by_model[model][key] for key in ("marker", "linestyle"))
    # Those left keep their colours.
    part = table[table["model.path"] == "ladder-30k"].query("variant != 'GRPO'")
    assert figures.looks(part, "variant") == {name: by_variant[name] for name in ("REINFORCE++", "Dr. GRPO")}
    other = table.assign(cell=table["variant"] + ", n=" + (table["model.path"].str.len()).astype(str))
    alone = figures.looks(other.assign(**{"model.path": "one", "parameters_non_embedding": 1}), "cell")
    assert len({tuple(style.values()) for style in alone.values()}) == 6


def test_sizes_are_solid_lines_that_grow_darker_and_are_named_in_the_order_of_their_ends(data):
    styles = figures.looks(ALL_SIZES)
    assert list(styles) == list(SIZES)
    tones = [luminance(style["color"]) for style in styles.values()]
    assert tones == sorted(tones, reverse=True) and len(set(tones)) == len(tones)
    assert {style["linestyle"] for style in styles.values()} == {"-"}
    (ax,) = drawn(data, "learning_curves", "acl")["learning_curves"].figure.axes
    legend = ax.get_legend()
    assert legend is not None
    named = {text.get_text(): text.get_color() for text in legend.get_texts()}
    assert named == {name: style["color"] for name, style in styles.items()}
    ends = {str(line.get_label()): np.asarray(line.get_ydata(), float)[-1] for line in ax.lines}
    assert list(named) == sorted(named, key=lambda name: ends[name], reverse=True)
    starts = [line.get_xdata() for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert np.asarray(starts).tolist() == [[0]] * 4 and ax.get_xscale() == "log"  # at the left edge


def test_laws_of_cells_have_the_colours_that_the_cells_have_in_other_figures(data):
    expected = {cell: style["color"] for cell, style in figures.looks(data.evals, "cell").items()}
    for name in ("law_of_coverage", "law_of_cells"):
        (ax,) = drawn(data, name, "acl")[name].figure.axes
        found = {str(line.get_label()): line.get_color() for line in ax.lines}
        found = {cell: colour for cell, colour in found.items() if not cell.startswith("_")}
        assert len(found) > 1 and found == {cell: expected[cell] for cell in found}


def test_before_and_after_are_grey_in_the_legend_and_on_one_row(data):
    (ax,) = drawn(data, "before_after", "acl")["before_after"].figure.axes
    legend = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    assert {line.get_color() for line in legend.values()} == {"0.4"}
    assert [line.get_markerfacecolor() for line in legend.values()] == ["white", "0.4"]
    places = sorted(round(float(np.asarray(bar.get_paths()[0].vertices)[0, 1]), 2) for bar in ax.collections)
    assert places[:4] == [0, 0, 1, 1]


def test_what_is_rendered_says_where_numbers_come_from_and_has_tables_and_figures_to_paste(rendered):
    record = json.loads((rendered[0] / "scaling_law.json").read_text())
    assert len(record["runs"]) == 8
    assert {run["seed"] for run in record["runs"]} == {0, 1}
    facts = {"scorer_version", "held_out_hash", "data_hash", "held_out"}
    assert all(facts <= set(run) for run in record["runs"])
    assert record["law"]["law"] == "power" and record["law"]["n"] == 6  # the held-out size is not among them
    assert set(record["law"]["params"]) == {"A", "alpha"}
    assert "law" not in json.loads((rendered[0] / "learning_curves.json").read_text())
    table = pd.read_csv(rendered[0] / "learning_curves.csv")
    assert len(table) == 24
    assert (table["low"] < table["high"]).all()
    mean = table.groupby(["cell", "step"])["eval/pass@1"].transform("mean")
    assert ((table["low"] <= mean) & (mean <= table["high"])).all()
    text = (rendered[0] / "before_after.tex").read_text()
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    assert text.count("ladder-300k† &") == 1 and text.count("†") == 2
    assert "† held out of the law's fit." in text
    rows = [line for line in text.splitlines() if line.startswith("ladder-")]
    assert len(rows) == 4 and all(len(re.findall(r"\[0\.\d{3}, 0\.\d{3}\]", row)) == 2 for row in rows)
    text = (rendered[0] / "figures.tex").read_text()
    assert text.count("\\begin{figure*}") == 1  # main, over both columns
    drawings = sorted(path.stem for path in rendered[0].glob("*.pdf"))
    assert sorted(re.findall(r"\\label{fig:([\w-]+)}", text)) == drawings
    assert sorted(re.findall(rf"\\includegraphics{{{rendered[0].name}/([\w-]+).pdf}}", text)) == drawings
    assert "Caution: Only 1.0 decades of non-embedding parameters. " in text


def test_runs_of_unequal_steps_side_by_side_come_with_a_caution(study):
    caution, data = "Caution: runs of unequal length side by side, 10 to 20 steps.", StudyData(study)
    late = (data.evals["cell"] == "ladder-30k") & (data.evals["seed"] == 1) & (data.evals["step"] > 10)
    data.__dict__["evals"] = data.evals[~late]  # a run has not got to its last step
    drawing = drawn(data, "before_after", "acl")["before_after"]
    assert caution in drawing.caption
    assert caution in [text.replace("\n", " ") for text, *_ in boxes(drawing.figure)]
    table = tables(data)["before_after"]
    last = table.splitlines()[-3:]
    assert last[0] == r"\bottomrule" and caution in last[1] and last[2] == r"\end{tabular}"
    assert " & steps & " in table
    text = write(study, data.change, data.points)
    assert caution in text and f"no law: none was asked for; rlkit figures {study} --law power" in text
    whole = StudyData(study)
    assert "Caution" not in tables(whole)["before_after"]
    assert "Caution" not in drawn(whole, "before_after", "acl")["before_after"].caption


def test_latex_escapes_text_and_formats_numbers():
    columns = {"a_b": ["x_1 & y", None], "n": [1200, 3], "v": [-0.5, np.nan], "w": [np.inf, 2e-5]}
    table = pd.DataFrame(columns)
    text = figures.latex_table(table)
    assert r"a\_b & n & v & w" in text
    assert r"x\_1 \& y & 1\,200 & $-0.500$ & $\infty$ \\" in text
    assert r"-- & 3 & -- & 2.00e-05 \\" in text
    with pytest.raises(UserError, match="intervals names 'low', which is no column"):
        figures.latex_table(table, {"v": ("low", "high")})


def test_what_a_study_has_no_data_for_is_left_out_with_the_reason(study, tmp_path, monkeypatch):
    for name in set(FIGURES) - {"data", "sft_ratio", "before_after"}:
        monkeypatch.delitem(FIGURES, name)
    files, missing, _ = render(study, out=tmp_path)
    assert set(missing) == {"data", "sft_ratio"}
    assert {path.stem for path in files} == {"before_after", "law", "figures"}
    assert missing["sft_ratio"] == "This needs 2 values of data.sft_ratio, and the study has 1."
    said = CliRunner().invoke(app, ["figures", str(study), "--out", str(tmp_path)]).output.splitlines()
    line = "not drawn, for want of data (2): data, sft_ratio; --only NAME says what one lacks"
    assert said[0] == line and len(said) == 2


def test_what_cannot_be_drawn_is_one_sentence_and_one_figure_can_be_asked_for(study, tmp_path):
    with RunStore.open(config(), tmp_path):
        pass
    with pytest.raises(UserError, match="has been evaluated yet: rlkit status"):
        render(tmp_path / "sizes")
    with pytest.raises(UserError, match="Unknown law 'pwer'"):
        render(study, law="pwer", out=tmp_path)
    with pytest.raises(UserError, match="venue is 'nips'. Did you mean 'neurips'"):
        render(tmp_path / "nothing", "nips")
    with pytest.raises(UserError, match="no figure 'before'. Did you mean 'before_after'"):
        render(study, out=tmp_path, only=["before"])
    call = ["figures", str(study), "--out", str(tmp_path / "out"), "--only"]
    assert CliRunner().invoke(app, [*call, "before_after"]).output == f"wrote 5 files to {tmp_path}/out\n"
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {"before_after"}
    said = CliRunner().invoke(app, [*call, "sft_ratio"]).output
    assert "sft_ratio: This needs 2 values of data.sft_ratio" in said and "wrote" not in said


def test_a_law_comes_with_its_cautions_wherever_it_is_pasted_from(study, tmp_path):
    data = StudyData(study, "power")
    errors = [0.92, 0.91, 0.86, 0.86, 0.84, 0.84, 0.4, 0.4]
    data.__dict__["points"] = data.points.assign(error=errors, run=[f"r{i}" for i in range(8)])
    drawing = drawn(data, "scaling_law", "acl")["scaling_law"]
    outside = "ladder-300k lies outside the interval that the law foretold for it."
    assert f"Caution: {outside} Only 1.0 decades of non-embedding parameters." in drawing.caption
    law = json.loads(drawing.save(tmp_path / "scaling_law")[-1].read_text())["law"]
    assert law["warnings"] == data.fit.warnings and law["warnings"][0].startswith("Only 1.0 decades of param")
    (missed,) = law["held_out"]
    assert missed["cell"] == "ladder-300k" and missed["observed"] == pytest.approx(0.4)
    assert missed["low"] > 0.4
    assert f"columnwidth}}{{{outside} Only 1.0 decades of non-embedding parameters." in tables(data)["law"]
    assert "Caution" not in drawn(data, "learning_curves", "acl")["learning_curves"].caption


def test_a_caption_is_escaped_and_cautions_of_several_laws_say_which():
    one = ["A is at its bound 1: so."]
    both = {"a": {"warnings": one}, "b": {"warnings": [*one, "Only 4 points for 2 parameters: no."]}}
    found = cautions({"law": both})
    assert found == "Caution: A is at its bound 1. Only 4 points for 2 parameters (b)."
    assert cautions({"law": {"law": "power", "warnings": []}}) == cautions({}) == ""
    drawing = figures.Drawing(Figure(), pd.DataFrame(), caption=r"a_b < 5 % \ ~")
    text = drawing.to_latex("f/x_1.pdf", wide=True)
    assert r"\caption{a\_b $<$ 5 \% \textbackslash{} \textasciitilde{}}" in text
    assert text.startswith("\\begin{figure*}\n") and text.endswith("\\label{fig:x_1}\n\\end{figure*}\n")


@pytest.mark.parametrize("end", [0, 20])
def test_a_cell_without_a_graded_sample_is_left_out_and_named(tmp_path, end):
    folder = write_study(tmp_path)
    for path in folder.glob("runs/ladder-30k-*/evals.parquet"):
        evals = pd.read_parquet(path)
        evals.loc[evals["step"] == end, "correct"] = None
        evals.to_parquet(path)
    call = ["figures", str(folder), "--out", str(tmp_path / "out"), "--only=before_after"]
    left_out = "without a graded sample before or after training: ladder-30k"
    assert CliRunner().invoke(app, call).output.startswith(f"left out, {left_out}\n")
    data = StudyData(folder)
    for name in ("before_after", "learning_curves", "scaling_law", "pass_at_k", "training"):
        drawing = drawn(data, name, "neurips")[name]
        assert set(drawing.table["cell"].dropna()) == set(SIZES) - {"ladder-30k"}, name
        assert name != "before_after" or f"Left out, {left_out}." in drawing.caption
    assert left_out in tables(data)["before_after"]
    samples = read_evals(folder)
    assert left_out in write(folder, before_after(samples), final(read(folder)))
    samples["correct"] = None
    with pytest.raises(UserError, match="No cell of these runs has a graded sample"):
        before_after(samples)


def test_without_a_fit_nothing_is_held_out_of_it_and_a_kept_law_is_captioned(study):
    data = StudyData(study)
    why = "x['x'] is 33120 in all 6 rows"
    text = write(study, data.change, data.points, no_law=why)
    assert f"no law: {why}" in text and "(held out)" in text and "of the fit" not in text
    data.__dict__["points"] = data.points.head(2)
    found = tables(data)
    assert "† held out." in found["before_after"] and "law" not in found
    data = StudyData(study)  # a drawing that is kept has the caption of its name
    drawing = data.keep("scaling_law", figures.law(data.fit, data.points, by="cell"))
    record = json.loads((data.folder / "figures" / "scaling_law.json").read_text())
    assert record["caption"] == drawing.caption
    assert drawing.caption.startswith(FIGURES["scaling_law"].caption + " Caution: ")
    assert len(record["runs"]) == 8


def test_the_fit_of_an_analysis_is_repeated_as_it_was(study, tmp_path):
    shutil.copytree(study, tmp_path / "sizes")
    data, options = StudyData(tmp_path / "sizes"), {"y": "error", "x": "parameters_non_embedding"}
    for resample, loss in (("residual", "huber"), ("case", "ls")):
        fit = rlkit.fit(data.points, "power", **options, cluster="cell", loss=loss, resample=resample, seed=3)
        write(data.folder, data.change, data.points, fit)
        again = StudyData(data.folder).fit
        assert again.to_json() == fit.to_json() and again.resampled and "cluster" in again.resampled.kind


def test_long_names_of_rows_are_wrapped_and_leave_room_for_the_axes(data):
    long = {"cell": lambda t: "custom_reward_function = a/rather/long/file.py:" + t["cell"]}
    with figures.styled():
        fig = figures.before_after(data.change.assign(**long), "acl").figure
        boxes(fig)
    (ax,) = fig.axes
    assert ax.get_yticklabels()[0].get_text().count("\n") == 1
    assert ax.get_position().width > 0.25
