"""What the linter found as a table in the terminal and as an HTML page with plots."""

import base64
import html
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from rlkit.data.guru import domain
from rlkit.data.linter import CHECKS, Finding, Report
from rlkit.data.plots import balance, lengths
from rlkit.figures import Drawing
from rlkit.files import write_text

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 200
"""Findings of each check that the page lists."""

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Data check</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse;margin:1rem 0}}
td,th{{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}}
img{{max-width:100%}}.error{{color:#b00020}}.warning{{color:#8a5a00}}</style>
<h1>Data check</h1><p>{files}</p>{body}</html>"""


def table(report: Report) -> Table:
    """One line a check: severity, findings, and where and what the first one is."""
    counts = report.counts()
    title = f"{len(report.sources):,} rows, {len(set(report.sources))} data sources"
    result = Table("check", "severity", "rows", "meaning", "first", title=title)
    for check, (severity, meaning) in CHECKS.items():
        first = next((f for f in report.findings if f.check == check), None)
        example = "" if first is None else f"{_place(first)}: {first.detail}"
        style = {"error": "red", "warning": "yellow"}[severity] if first else "dim"
        result.add_row(check, severity, f"{counts[check]:,}", meaning, Text(example), style=style)
    return result


def _place(finding: Finding) -> str:
    return f"{Path(finding.file).name}, row {finding.row}" if finding.row >= 0 else finding.data_source


def findings_frame(report: Report) -> "pd.DataFrame":
    """One row a finding: check, severity, file, row, data_source, detail."""
    import pandas as pd

    columns = ["check", "severity", "file", "row", "data_source", "detail"]
    return pd.DataFrame([[getattr(f, c) for c in columns] for f in report.findings], columns=columns)


def sources_frame(report: Report) -> "pd.DataFrame":
    """One row a data_source: domain, rows, and the quartiles of its prompts' lengths."""
    import pandas as pd

    frame = pd.DataFrame({"data_source": report.sources, "length": report.lengths})
    groups = frame.groupby("data_source")["length"]
    result = groups.agg(rows="size", shortest="min", median="median", longest="max").reset_index()
    result.insert(1, "domain", [domain(str(s)) for s in result["data_source"]])
    return result


def page(report: Report, path: str | Path) -> None:
    """Write the HTML page: findings, data sources, class balance and lengths. It needs no other file."""
    sources = sources_frame(report)
    parts = [f"<h2>{len(report.findings):,} findings</h2>", _summary(report)]
    for check in report.counts():
        parts.append(_section(report, check))
    parts += [
        "<h2>Data sources</h2>",
        _image(balance(sources)),
        sources.to_html(index=False, border=0, float_format="{:.0f}".format),
    ]
    parts += [f"<h2>Prompt length in {report.length_unit}</h2>", _image(lengths(report))]
    write_text(path, _PAGE.format(files=html.escape(", ".join(report.files)), body="\n".join(parts)))


def _summary(report: Report) -> str:
    counts = report.counts()
    lines = [
        f"<tr class='{severity if counts[check] else ''}'><td>{check}</td><td>{severity}</td>"
        f"<td>{counts[check]:,}</td><td>{html.escape(meaning)}</td></tr>"
        for check, (severity, meaning) in CHECKS.items()
    ]
    note = f"<p>{report.ungraded:,} rows have no reference answer to grade.</p>" if report.ungraded else ""
    return f"<table><tr><th>check<th>severity<th>rows<th>meaning</tr>{''.join(lines)}</table>{note}"


def _section(report: Report, check: str) -> str:
    found = [f for f in report.findings if f.check == check]
    lines = [
        f"<tr><td>{html.escape(Path(f.file).name)}</td><td>{f.row if f.row >= 0 else ''}</td>"
        f"<td>{html.escape(f.data_source)}</td><td>{html.escape(f.detail)}</td></tr>"
        for f in found[:SHOWN]
    ]
    more = f"<p>and {len(found) - SHOWN:,} more</p>" if len(found) > SHOWN else ""
    head = "<tr><th>file<th>row<th>data_source<th>detail</tr>"
    return f"<h3>{check}: {html.escape(CHECKS[check][1])}</h3><table>{head}{''.join(lines)}</table>{more}"


def _image(drawing: Drawing) -> str:
    return f"<img alt='' src='data:image/png;base64,{base64.b64encode(drawing._repr_png_()).decode()}'>"
