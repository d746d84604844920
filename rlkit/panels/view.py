"""The ablation panel's widgets: they show what rlkit.panels.ablation does."""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rlkit.errors import UserError
from rlkit.panels import comparison
from rlkit.panels.ablation import Ablation, cost
from rlkit.panels.aside import aside
from rlkit.panels.controls import KEYS, Control, controls
from rlkit.panels.live import Output, Worker
from rlkit.results.labels import in_words


def panel(
    source: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    keys: Sequence[str] = KEYS,
    root: str | Path = "outputs",
) -> "Panel":
    """An ablation panel for a notebook: change a configuration with sliders, launch it, see it beside the rest.

    Args:
        source: a params file, or outputs/<study>.
        overrides: dotted keys, changed before the panel begins (fewer steps, a smaller model).
        keys: of RunConfig, the controls to show.
        root: folder of all studies.

    Raises:
        UserError: a wrong file, override or key.
    """
    return Panel(Ablation.of(source, overrides, root), keys)


class Panel:
    """Controls, buttons, curves and a table. Shown by a notebook as the value of a cell.

    Attributes:
        ablation: what the controls have set.
        widgets: the control of each key.
    """

    def __init__(self, ablation: Ablation, keys: Sequence[str] = KEYS) -> None:
        self.ablation = ablation
        self.controls = {c.key: c for c in controls(ablation.base, keys)}
        self.widgets = {key: _widget(control) for key, control in self.controls.items()}
        self._picture, self._table = Output(), Output()
        self._worker = Worker(self._refresh, self._failed, quiet=0.2)
        self._drawn: Any = None  # what the picture shows
        self._priced = ""  # the configuration that the cost is of
        self._build()
        for key, widget in self.widgets.items():
            widget.observe(self._on_change(key), "value")
        self._say_changes()

    def _build(self) -> None:
        import ipywidgets as w

        self.metric: Any = w.Dropdown(options=comparison.METRICS, description="curve")
        self.changed, self.cost, self.message = w.HTML(), w.HTML("estimating the cost …"), w.HTML()
        self.changed.add_class("rlkit-changed")
        self.launch = _button("Launch", "play", "primary", "Train this configuration in a process of its own")
        self.stop = _button("Stop", "stop", "", "End it at its next step border, with a checkpoint")
        self.reset = _button("Reset", "undo", "", "Back to the base")
        self.path = w.Text(f"params/{self.ablation.study}.yaml", layout=w.Layout(width="18em"))
        self.save = _button("Save as params", "save", "", "Write the configuration as a params file")
        self.variant = w.Text(placeholder="name of the variant", layout=w.Layout(width="12em"))
        self.add = _button("Add to study", "plus", "", "Add the changes to the study's file as a variant")
        self.metric.observe(lambda _: self._worker.wake(), "value")
        for button, action in (
            (self.launch, self._launch), (self.stop, self._stop), (self.reset, self._reset),
            (self.save, self._save), (self.add, self._add),
        ):  # fmt: skip
            button.on_click(self._reporting(action))
        sections: dict[str, list[Any]] = {}
        for key, control in self.controls.items():
            sections.setdefault(control.section, []).append(self.widgets[key])
        columns = w.Layout(grid_template_columns="repeat(auto-fill, 30em)")
        grids = [
            part
            for name, own in sections.items()
            for part in (w.HTML(f"<b>{name}</b>"), w.GridBox(own, layout=columns))
        ]
        rows = [
            *grids,
            self.changed,
            w.HBox([self.launch, self.stop, self.reset, self.cost]),
            w.HBox([self.path, self.save, self.variant, self.add], layout=w.Layout(flex_flow="row wrap")),
            self.message,
            self.metric,
        ]
        self.box = w.VBox(rows)
        self.box.add_class("rlkit-panel")

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)
        self._picture.show()
        self._table.show()
        # here, so that a notebook that is executed and saved has both
        self._show(self.runs(), comparison.drawn)
        self._worker.start()

    def __repr__(self) -> str:
        return f"<panel of {self.ablation.base.study}: {in_words(self.differences())}>"

    def differences(self) -> dict[str, tuple[Any, Any]]:
        return self.ablation.differences(self.ablation.config)

    def _on_change(self, key: str) -> Callable[[Any], None]:
        def changed(event: Any) -> None:
            control, value = self.controls[key], event["new"]
            if control.kind == "log":
                value = float(f"{value:.3g}")
            same = (
                math.isclose(value, control.value)
                if control.kind in ("log", "number")
                else value == control.value
            )
            if same:
                self.ablation.changes.pop(key, None)
            else:
                self.ablation.changes[key] = value
            self.widgets[key].description = control.label if same else f"● {control.label}"
            self._say_changes()
            self._worker.wake()

        return changed

    def _say_changes(self) -> None:
        """Differences from the base, or why the configuration is impossible; at once, before any drawing."""
        try:
            found = self.differences()
        except UserError as problem:
            self.launch.disabled = True
            self.changed.value = f"<span style='color:#b00020'>{html.escape(str(problem))}</span>"
            return
        self.launch.disabled = False
        words = [
            f"<code>{html.escape(k)}</code> {_text(a)} → <b>{_text(b)}</b>" for k, (a, b) in found.items()
        ]
        self.changed.value = "Changed: " + (", ".join(words) or "nothing, this is the base")

    def runs(self) -> list[comparison.Entry]:
        return comparison.entries(self.ablation)

    def _refresh(self) -> bool:
        """Update curves, table and cost where something is new; true while a run is being trained."""
        runs = self.runs()
        self._show(runs, partial(aside, comparison.drawn))
        with suppress(UserError):  # an impossible configuration has no cost
            config = self.ablation.config
            if config.id != self._priced:
                self.cost.value = html.escape(aside(cost, config))
                self._priced = config.id
        return any(entry.state.active for entry in runs)

    def _show(self, runs: list[comparison.Entry], draw: Callable[..., tuple[bytes, str, str]]) -> None:
        """Draw the runs, unless what is drawn shows them already."""
        try:
            current = in_words(self.differences())
        except UserError:
            current = ""
        states = [(e.folder, e.state.status, e.state.step, e.state.now) for e in runs]
        if (now := (current, self.metric.value, states)) == self._drawn:
            return
        try:
            png, table, text = draw(runs, current, self.metric.value)
        except UserError as problem:
            self._picture.html(f"<i>{html.escape(str(problem))}</i>", str(problem))
        else:
            names = ", ".join(dict.fromkeys(entry.label for entry in comparison.chosen(runs, current)))
            self._picture.picture(png, f"curves of {names}")
            self._table.html(table, text)
        self._drawn = now

    def _reporting(self, action: Callable[[], str]) -> Callable[[Any], None]:
        """A button's action whose sentence, or error, appears in the panel."""

        def clicked(_: Any) -> None:
            try:
                self.message.value = html.escape(action())
            except UserError as problem:
                self.message.value = f"<span style='color:#b00020'>{html.escape(str(problem))}</span>"
            self._worker.wake()

        return clicked

    def _failed(self, problem: Exception) -> None:
        self.message.value = f"not drawn: {html.escape(f'{type(problem).__name__}: {problem}')}"

    def _launch(self) -> str:
        run = self.ablation.launch()
        return f"{run.status}: {run.folder}"

    def _stop(self) -> str:
        from rlkit.panels.launching import attach

        current = in_words(self.differences())
        active = [e for e in comparison.entries(self.ablation) if e.label == current and e.state.active]
        for entry in active:
            attach(entry.folder).stop(wait=False)
        names = ", ".join(entry.folder.name for entry in active)
        return (
            f"{names} ends at its next step border"
            if names
            else "No run of this configuration is being trained."
        )

    def _reset(self) -> str:
        for key, widget in self.widgets.items():
            widget.value = self.controls[key].value
        return ""

    def _save(self) -> str:
        path = self.ablation.save(self.path.value)
        return f"wrote {path}: rlkit run {path} trains it"

    def _add(self) -> str:
        return self.ablation.add_to_study(self.variant.value.strip() or "ablation")


def _widget(control: Control) -> Any:
    """The widget of a control, with its description as tooltip."""
    import ipywidgets as w

    look: dict[str, Any] = {
        "description": control.label, "tooltip": control.help, "value": control.value,
        "style": {"description_width": "11em"}, "layout": w.Layout(width="29em"),
    }  # fmt: skip
    if control.kind == "choice":
        return w.Dropdown(options=control.options, **look)
    if control.kind == "suggestion":
        return w.Combobox(options=[str(o) for o in control.options], ensure_option=False, **look)
    if control.kind == "switch":
        return w.Checkbox(indent=True, **look)
    if control.kind == "text":
        return w.Text(**{**look, "value": str(control.value)})
    low, high = control.low or 0.0, control.high or 1.0
    if control.kind == "integer":
        return w.IntSlider(min=int(low), max=int(high), **look)
    if control.kind == "log":
        ends = {"min": math.log10(low), "max": math.log10(high)}
        return w.FloatLogSlider(base=10, step=0.05, readout_format=".3g", **ends, **look)
    return w.FloatSlider(min=low, max=high, step=control.step, readout_format=".3g", **look)


def _button(text: str, icon: str, style: str, tooltip: str) -> Any:
    import ipywidgets

    return ipywidgets.Button(description=text, icon=icon, button_style=style, tooltip=tooltip)


def _text(value: Any) -> str:
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
