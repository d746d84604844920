"""The ablation panel: change, price, launch and keep a configuration by controls made from its schema, and see its runs
beside each other."""

import html
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ipywidgets as w
import pandas as pd
import yaml
from IPython.display import DisplayHandle, Pretty

from rlkit import figures
from rlkit.config import RunConfig, load
from rlkit.config.run import NOT_COMPARED, in_words, name_of, short
from rlkit.errors import UserError, did_you_mean
from rlkit.files import write_text
from rlkit.measures.comparisons import differences
from rlkit.measures.summary import before_after
from rlkit.panels.launching import CURVES, Launched, Live, attach, launch, show
from rlkit.params import flatten, override, parse_yaml, validate
from rlkit.results.machine import usable_cores
from rlkit.results.read import read, read_evals
from rlkit.results.run_state import config_of, run_state
from rlkit.studies.status import duration

KEYS = (
    "model.path", "model.lora_rank", "algorithm.adv_estimator", "actor.policy_loss.loss_mode", "actor.optim.lr",
    "actor.clip_ratio", "actor.use_kl_loss", "actor.kl_loss_coef", "actor.entropy_coeff", "rollout.n",
    "rollout.temperature", "data.train_batch_size", "trainer.total_training_steps", "seed",
)  # fmt: skip
"""What the panel shows unless told otherwise; the weights of several sources come on top."""
MOST = 8  # configurations beside each other: as many as there are colours


def panel(
    source: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    keys: Sequence[str] = KEYS,
    root: str | Path = "outputs",
) -> "Panel":
    """An ablation panel for a notebook: change a configuration with sliders, launch it, see it beside the rest.

    Args:
        source: a params file, of a run or a study; the study's runs are shown beside yours.
        overrides: dotted keys, changed before the panel begins (fewer steps, a smaller model).
        keys: of RunConfig, the controls to show.
        root: folder of all studies.

    Raises UserError for a wrong file, override or key.
    """
    return Panel(Ablation(load(source, overrides), root), keys)


class Ablation:
    """A configuration and the changes made to it (dotted keys to new values); differences are from the `base`. `root`
    is the folder of all studies."""

    def __init__(self, base: RunConfig, root: str | Path = "outputs") -> None:
        self.base, self.root = base, Path(root)
        self.changes: dict[str, Any] = {}

    @property
    def study(self) -> str:
        """The study that launched runs belong to, beside that of the base."""
        return self.base.study.removesuffix("-panel") + "-panel"

    @property
    def config(self) -> RunConfig:
        """The changed configuration. Raises UserError for impossible values."""
        content = self.base.model_dump(mode="json")
        return validate(RunConfig, override(content, {**self.changes, "study": self.study}))

    def differences(self, content: Mapping[str, Any] | None = None) -> dict[str, tuple[Any, Any]]:
        """Dotted keys in which the changed configuration, or the `content` of another one, differs from the base, seeds
        apart, with both values. Raises UserError as `config`."""
        one = flatten(self.base.model_dump(mode="json"))
        other = flatten(self.config.model_dump(mode="json") if content is None else content)
        keys = [key for key in dict.fromkeys((*one, *other)) if key not in NOT_COMPARED]
        return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}

    def cost(self) -> str:
        """FLOPs and time of the changed configuration on this machine, in words; imports torch. Raises UserError where
        `model.path` is neither known nor a hub id."""
        from rlkit.models.shapes import shape_of
        from rlkit.sizing.estimate import estimate

        found = estimate(config := self.config)
        if found is None:
            if "/" not in config.model.path:
                shape_of(config.model.path)
            return "cost unknown: the model's configuration is not on this machine"
        return f"about {found.flops:.1e} FLOPs, {duration(found.seconds)} here"

    def launch(self) -> Launched:
        """Train the changed configuration in its own process, on all cores but one. Raises UserError as `config`."""
        return launch(self.config, {"trainer.num_threads": max(1, usable_cores() - 1)}, root=self.root)

    def save(self, path: str | Path) -> Path:
        """Write the changed configuration as a params file that holds what differs from the defaults. Raises UserError
        where its name is no study's, or the file exists and holds something else."""
        path = Path(path)
        if path.suffix not in (".yaml", ".yml"):
            raise UserError(f"{path} is no params file: give a name that ends in .yaml.")
        config = validate(RunConfig, {**self.config.model_dump(mode="json"), "study": path.stem})
        content = _changed(config.model_dump(mode="json"), RunConfig.model_validate({}).model_dump(mode="json"))
        text = f"# {self.base.study} with {in_words(self.differences())}\n"
        text += yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise UserError(f"{path} exists and holds something else: choose another name, or delete it.")
        write_text(path, text)
        return path

    def beside(self) -> dict[str, list[Path]]:
        """The folders of the runs of the base's study and of the panel's by what they change, in words ("base" for
        nothing; with all keys and values where they are alike): those like the changed configuration first, then the
        nearest to the base; at most eight kinds."""
        current, found = None, dict[tuple[bool, int, str, str], list[Path]]()
        with suppress(UserError):  # an impossible configuration has no runs
            current = self.differences()
        for study in dict.fromkeys((self.base.study, self.study)):
            for folder in sorted((self.root / study).glob("runs/*")):
                if content := config_of(folder):
                    changed = self.differences(content)
                    whole = ", ".join(f"{key} = {new}" for key, (_, new) in changed.items())
                    kind = changed != current, len(changed), in_words(changed), whole
                    found.setdefault(kind, []).append(folder)
        kinds = sorted(found)[:MOST]
        words = [kind[2] for kind in kinds]
        return {kind[3] if words.count(kind[2]) > 1 else kind[2]: found[kind] for kind in kinds}


def _changed(content: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What of nested sections is not as in the usual ones; lists are whole."""
    new = {key: value for key, value in content.items() if value != usual.get(key)}
    nested = {key for key, value in new.items() if isinstance(value, dict) and usual.get(key)}
    return {key: _changed(value, usual[key]) if key in nested else value for key, value in new.items()}


def samples_of(beside: Mapping[str, Iterable[Path]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What `rlkit.read` and `rlkit.read_evals` give of the runs of `Ablation.beside`; `cell` is what they change, and
    "base" is the baseline of differences."""
    runs = [(label, folder) for label, folders in beside.items() for folder in folders]
    tables = []
    for reader in (read, read_evals):
        told = {label: json.dumps({"variant": [label, "base"]}) for label in beside}
        parts = [reader(folder).assign(cell=label, factors=told[label]) for label, folder in runs]
        table = pd.concat([part for part in parts if len(part)] or [pd.DataFrame()], ignore_index=True)
        tables.append(table.drop(columns=["variant", "variant_place"], errors="ignore"))
    return tables[0], tables[1]


def comparison(beside: Mapping[str, Iterable[Path]], evals: pd.DataFrame) -> pd.DataFrame:
    """A row a configuration: seeds, state, pass@1 at the end with low and high, and its difference from the base
    with its interval, paired by problem (`rlkit.measures`)."""
    rows = []
    for label, folders in beside.items():
        seeds = ", ".join(str(config_of(folder).get("seed")) for folder in folders)
        states = ", ".join(dict.fromkeys(run_state(folder).status for folder in folders))
        rows.append({"cell": label, "seeds": seeds, "state": states})
    table = pd.DataFrame(rows)
    if evals.empty:
        return table
    with suppress(UserError):  # nothing is graded yet, or there is no base
        change = before_after(evals)
        after = change.loc[change["when"] == "after", ["cell", "pass@1", "low", "high"]]
        table = table.merge(after, how="left", on="cell")
        told = "{difference:+.3f} [{low:+.3f}, {high:+.3f}]"
        found = {row["cell"]: told.format_map(row) for row in differences(evals).to_dict("records")}
        table["against base"] = table["cell"].map(found).fillna("")
    return table


def controls(config: RunConfig, keys: Sequence[str] = KEYS) -> dict[str, Any]:
    """The widget of each key, in their order, and for a mixture one for the weight of each source: a choice, a switch,
    a slider over the schema's bounds (or around the value), or a text that is read as YAML, empty for what is unset.
    Raises UserError for a key that RunConfig lacks, or that holds a section."""
    flat = flatten(config.model_dump(mode="json"))
    labels = {key: name_of(key) for key in keys}
    weights = [key for key in flat if key.startswith("data.train.") and key.endswith(".weight")]
    if len(weights) > 1:
        labels |= {key: f"weight of {flat[key.replace('weight', 'kind')]}" for key in weights}
    return {key: _control(key, flat, label) for key, label in labels.items()}


def slider(value: float, low: float, high: float, step: float, log: bool = False, **look: Any) -> Any:
    """A slider between `low` and `high`, ends moved inwards so that whole steps lead to `value`: a browser rounds to
    those. With `log`, `step` is in decades."""
    place = math.log10 if log else float
    down, up = (math.floor((place(b) - place(a)) / step + 1e-9) for a, b in ((low, value), (value, high)))
    ends = {"min": place(value) - step * down, "max": place(value) + step * up, "step": step}
    kind = w.FloatLogSlider if log else w.FloatSlider
    return kind(value=value, **ends, **look)


def _control(key: str, flat: Mapping[str, Any], label: str) -> Any:
    if key not in flat:
        near = f"{did_you_mean(key, flat)} See rlkit config --schema."
        raise UserError(f"{key!r} is no single value of a run's configuration.{near}")
    schema, value = _schema(key), flat[key]
    look: dict[str, Any] = {"description": label, "tooltip": schema.get("description", "")}
    look |= {"style": {"description_width": "11em"}, "layout": {"width": "29em"}}
    if options := schema.get("enum") or schema.get("examples"):
        if key == "model.path":  # any folder or hub id
            return w.Combobox(value=value, options=options, **look)
        return w.Dropdown(value=value, options=tuple(dict.fromkeys((value, *options))), **look)
    if isinstance(value, bool):
        return w.Checkbox(value=value, indent=True, **look)
    low, high = schema.get("minimum"), schema.get("maximum", schema.get("exclusiveMaximum"))
    if isinstance(value, int):
        low = schema.get("exclusiveMinimum", -1) + 1 if low is None else low
        return w.IntSlider(value=value, min=low, max=high or max(4 * value, 16), **look)
    if not isinstance(value, float):
        return w.Text(value="" if value is None else str(value), **look)
    look["readout_format"] = ".3g"
    if high is None and 0 < value < 0.1:
        return slider(value, value / 100, value * 100, 0.05, log=True, **look)
    if high is None:  # of the order of one, such as a temperature
        high = max(2.0, 4 * value) if value else 1.0
    return slider(value, 0.01 if low is None else low, high, 0.01, **look)


def _schema(key: str) -> dict[str, Any]:
    """The JSON schema of one value, of alternatives that of the one that is not null; empty in a list of sections."""
    node = found = whole = RunConfig.model_json_schema()
    for part in key.split("."):
        node = found.get("properties", {}).get(part, {})
        found = next((one for one in node.get("anyOf", ()) if one.get("type") != "null"), node)
        if "$ref" in found:
            found = whole["$defs"][found["$ref"].rsplit("/", 1)[-1]]
    return {**found, **{k: v for k, v in node.items() if k in ("description", "examples")}}


class Panel(Live):
    """Controls (`widgets`, one a key), buttons, curves and a table over an ablation, shown as the value of a cell."""

    def __init__(self, ablation: Ablation, keys: Sequence[str] = KEYS) -> None:
        super().__init__()
        self.ablation, self.widgets = ablation, controls(ablation.base, keys)
        self._start = {key: (widget.value, widget.description) for key, widget in self.widgets.items()}
        self._values = flatten(ablation.base.model_dump(mode="json"))
        self._box, self._picture, self._table = DisplayHandle(), DisplayHandle(), DisplayHandle()
        self._drawn: Any = None
        self.changed, self.cost = w.HTML(), w.HTML()
        self.changed.add_class("rlkit-changed")
        self.path = w.Text(f"params/{ablation.study}.yaml", layout=w.Layout(width="18em"))
        self.launch = self.button("Launch", "play", lambda: repr(ablation.launch()), "or continue")
        self.launch.button_style = "primary"
        self.stop = self.button("Stop", "stop", self._stop, "at its next step border")
        self.reset = self.button("Reset", "undo", self._reset, "to the base")
        self.save = self.button("Save as params", "save", lambda: f"wrote {ablation.save(self.path.value)}")
        sections: dict[str, list[Any]] = {}
        for key, widget in self.widgets.items():
            widget.observe(self._change, "value")
            sections.setdefault(key.partition(".")[0] if "." in key else "run", []).append(widget)
        columns = w.Layout(grid_template_columns="repeat(auto-fill, 30em)")
        groups = [[w.HTML(f"<b>{name}</b>"), w.GridBox(own, layout=columns)] for name, own in sections.items()]
        self.box = w.VBox([
            *itertools.chain.from_iterable(groups),
            self.changed,
            w.HBox([self.launch, self.stop, self.reset, self.cost]),
            w.HBox([self.path, self.save]),
            self.message,
        ])  # fmt: skip
        self.box.add_class("rlkit-panel")
        self._change()

    def _ipython_display_(self) -> None:
        show(self.box, self._box, self._picture, self._table)
        self._drawn = None
        self.begin()

    def refresh(self) -> bool:
        """As `Live`; curves and table are drawn where something is new."""
        beside = self.ablation.beside()
        states = [(label, run_state(f)) for label, folders in beside.items() for f in folders]
        now = [(label, s.status, s.step, s.now) for label, s in states]
        if now != self._drawn:
            self._drawn = now
            metrics, evals = samples_of(beside)
            if len(metrics):
                self._picture.update(figures.metric_panels(metrics, CURVES, by="cell", venue="tmlr"))
            else:
                self._picture.update(Pretty("No run has logged anything yet."))
            if beside:
                self._table.update(figures.table(comparison(beside, evals)))
        return any(state.active for _, state in states)

    def _change(self, _: Any = None) -> None:
        """Take over what the controls say: differences from the base and the cost, or why it is impossible."""
        try:
            changes = {key: self._value(key) for key in self.widgets}
            self.ablation.changes = {k: new for k, new in changes.items() if new != self._values[k]}
            for key, widget in self.widgets.items():
                widget.description = "● " * (key in self.ablation.changes) + self._start[key][1]
            found, self.cost.value = self.ablation.differences(), html.escape(self.ablation.cost())
        except UserError as problem:
            self.launch.disabled = True
            self.changed.value = f"<span style='color:#b00020'>{html.escape(str(problem))}</span>"
            return
        self.launch.disabled = False
        shown = {key: [html.escape(short(value)) for value in both] for key, both in found.items()}
        words = [f"<code>{key}</code> {old} → <b>{new}</b>" for key, (old, new) in shown.items()]
        self.changed.value = "Changed: " + (", ".join(words) or "nothing, this is the base")
        self.follow()

    def _value(self, key: str) -> Any:
        """What a control says, in the type of the configuration."""
        widget, base = self.widgets[key], self._values[key]
        if widget.value == self._start[key][0]:
            return base
        if type(widget).__name__ == "Text":
            return parse_yaml(widget.value)
        if not isinstance(widget.value, float):
            return widget.value
        same = isinstance(base, int | float) and math.isclose(widget.value, base)  # a browser adds steps up
        return base if same else float(f"{widget.value:.3g}")

    def _stop(self) -> str:
        current, shown = self.ablation.differences(), itertools.chain.from_iterable(self.ablation.beside().values())
        active = [f for f in shown if run_state(f).active and self.ablation.differences(config_of(f)) == current]
        for folder in active:
            attach(folder).stop(wait=False)
        names = ", ".join(folder.name for folder in active)
        return f"{names} ends at its next step border" if names else "No run of this configuration trains."

    def _reset(self) -> None:
        for key, widget in self.widgets.items():
            widget.value = self._start[key][0]
