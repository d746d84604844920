"""The ablation panel without widgets: change, price, launch and keep a configuration; tables of its runs."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rlkit.config import RunConfig
from rlkit.config.run import NOT_COMPARED, in_words
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.panels.launching import Launched, launch
from rlkit.params import flatten, override, validate
from rlkit.results.machine import usable_cores
from rlkit.results.progress import config_of, run_state
from rlkit.results.read import read, read_evals
from rlkit.studies.terminal import duration

if TYPE_CHECKING:
    import pandas as pd

MOST = 8  # configurations beside each other: as many as there are colours


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
        content = config.model_dump(mode="json", exclude_defaults=True)
        for source, given in zip(config.data.train, content.get("data", {}).get("train", ()), strict=False):
            given.update({"kind": source.kind, **given})
        text = f"# {self.base.study} with {in_words(self.differences())}\n"
        text += yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise UserError(f"{path} exists and holds something else: choose another name, or delete it.")
        write_text(path, text)
        return path

    def beside(self) -> dict[str, list[Path]]:
        """The folders of the runs of the base's study and of the panel's by what they change, in words ("base" for
        nothing): those like the changed configuration first, then the nearest to the base; at most eight kinds."""
        current, found = "", dict[tuple[bool, int, str], list[Path]]()
        with suppress(UserError):  # an impossible configuration has no runs
            current = in_words(self.differences())
        for study in dict.fromkeys((self.base.study, self.study)):
            for folder in sorted((self.root / study).glob("runs/*")):
                if content := config_of(folder):
                    changed = self.differences(content)
                    label = in_words(changed)
                    found.setdefault((label != current, len(changed), label), []).append(folder)
        return {label: found[other, count, label] for other, count, label in sorted(found)[:MOST]}


def samples_of(beside: Mapping[str, Iterable[Path]]) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """What `rlkit.read` and `rlkit.read_evals` give of the runs of `Ablation.beside`; `cell` is what they change, and
    "base" is the baseline of differences."""
    import pandas as pd

    runs = [(label, folder) for label, folders in beside.items() for folder in folders]
    tables = []
    for reader in (read, read_evals):
        told = {label: json.dumps({"variant": [label, "base"]}) for label in beside}
        parts = [reader(folder).assign(cell=label, factors=told[label]) for label, folder in runs]
        table = pd.concat([part for part in parts if len(part)] or [pd.DataFrame()], ignore_index=True)
        tables.append(table.drop(columns=["variant", "variant_place"], errors="ignore"))
    return tables[0], tables[1]


def comparison(beside: Mapping[str, Iterable[Path]], evals: "pd.DataFrame") -> "pd.DataFrame":
    """A row a configuration: seeds, state, pass@1 at the end with low and high, and its difference from the base
    with its interval, paired by problem (`rlkit.measures`)."""
    import pandas as pd

    from rlkit.measures.comparisons import differences
    from rlkit.measures.summary import before_after

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
