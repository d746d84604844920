"""What the ablation panel does, without widgets: change a configuration, price it, launch it, keep it."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rlkit.config import RunConfig, load
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.params import override, read_yaml, validate
from rlkit.results.labels import NOT_COMPARED, short
from rlkit.results.progress import process_of
from rlkit.results.provenance import hardware, usable_cores
from rlkit.results.read import flatten, run_folders
from rlkit.results.store import read_json
from rlkit.studies.report import duration

if TYPE_CHECKING:
    from rlkit.panels.launching import Launched

_FREE = 1024  # MiB of a GPU's memory in use, below which it counts as free
_NICE = 10  # priority of a run: below the notebook, its server and the browser


class Ablation:
    """A configuration and the changes made to it.

    Attributes:
        base: where it starts; differences are from it.
        changes: dotted keys to new values.
        file: the study's params file, where there is one.
        root: folder of all studies.
    """

    def __init__(self, base: RunConfig, file: Path | None = None, root: str | Path = "outputs") -> None:
        self.base, self.file, self.root = base, file, Path(root)
        self.changes: dict[str, Any] = {}

    @classmethod
    def of(
        cls, source: str | Path, overrides: Mapping[str, Any] | None = None, root: str | Path = "outputs"
    ) -> "Ablation":
        """From a params file, or from outputs/<study>, whose first run is the base.

        Raises:
            UserError: neither a params file nor a study's folder; a wrong override.
        """
        path = Path(source)
        if not path.is_dir():
            return cls(load(path, overrides), path, root)
        first = run_folders(path)[0]
        file = read_json(path / "study.json").get("params")
        return cls(load(first / "config.yaml", overrides), Path(file) if file else None, path.parent)

    @property
    def study(self) -> str:
        """The study that launched runs belong to, beside that of the base."""
        return self.base.study.removesuffix("-panel") + "-panel"

    @property
    def config(self) -> RunConfig:
        """The changed configuration. Raises UserError for impossible values."""
        content = self.base.model_dump(mode="json")
        return validate(RunConfig, override(content, {**self.changes, "study": self.study}))

    def differences(self, config: RunConfig) -> dict[str, tuple[Any, Any]]:
        """Dotted keys in which a configuration differs from the base, with both values; seeds apart."""
        return differences(self.base, config)

    def launch(self) -> "Launched":
        """Train the changed configuration in a process of its own, on a free GPU where there is one; it leaves
        a CPU core to the notebook, which also goes first where cores are short.

        Raises:
            UserError: impossible values; every GPU is in use.
        """
        import psutil

        from rlkit.panels.launching import launch

        threads = max(1, usable_cores() - 1)
        with _on_free_gpu(self.config):
            run = launch(self.config, {"trainer.num_threads": threads}, root=self.root)
        if process := process_of(read_json(run.folder / "run.json")):
            with suppress(psutil.Error):  # it has ended already, or began elsewhere
                process.nice(max(_NICE, process.nice()))
        return run

    def save(self, path: str | Path) -> Path:
        """Write the changed configuration as a params file that holds what differs from the defaults.

        Raises:
            UserError: the file exists and holds something else, or cannot be written.
        """
        path, config = Path(path), self.config
        content = {**_sparse(config), "study": path.stem}
        changed = ", ".join(f"{key}: {short(new)}" for key, (_, new) in self.differences(config).items())
        text = f"# {self.base.study} with {changed or 'nothing changed'}.\n"
        text += yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
        if path.suffix not in (".yaml", ".yml"):
            raise UserError(f"{path} is no params file: give a name that ends in .yaml.")
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise UserError(f"{path} exists and holds something else: choose another name, or delete it.")
        write_text(path, text)
        return path

    def add_to_study(self, name: str) -> str:
        """Add the changes to the study's file as a variant and return what that means, in words.

        Raises:
            UserError: there is no study file, nothing is changed, or the variant exists.
        """
        from rlkit.panels.study_file import add_variant

        if self.file is None or "run" not in read_yaml(self.file):
            raise UserError(
                f"{self.file or 'This panel'} is no study's file: open the panel with one (a file with run:)."
            )
        changed = {key: new for key, (_, new) in self.differences(self.config).items()}
        return add_variant(self.file, name, changed)


def cost(config: RunConfig) -> str:
    """FLOPs and time of a configuration on this machine, in words; imports torch."""
    from rlkit.sizing.estimate import estimate

    found = estimate(config)
    if found is None:
        return "cost unknown: the model's configuration is not on this machine"
    return f"about {found.flops:.1e} FLOPs, {duration(found.seconds)} here"


def _sparse(config: RunConfig) -> dict[str, Any]:
    """What differs from the defaults, and decides a number; sources keep their kind."""
    content = config.model_dump(mode="json", exclude_defaults=True)
    sources = content.get("data", {}).get("train", [])
    for source, given in zip(config.data.train, sources, strict=bool(sources)):
        given.update({"kind": source.kind, **given})
    for key in ("num_threads", "resume_mode", "logger"):
        content.get("trainer", {}).pop(key, None)
    return content


def differences(base: RunConfig, config: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Dotted keys in which two configurations differ, with both values; seeds and what decides no number
    apart."""
    one, other = (flatten(c.model_dump(mode="json")) for c in (base, config))
    keys = [key for key in dict.fromkeys((*one, *other)) if key not in NOT_COMPARED]
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}


@contextmanager
def _on_free_gpu(config: RunConfig) -> Iterator[None]:
    """Let processes started inside see one GPU that nobody uses; does nothing on a machine without."""
    if not hardware()["gpus"] or config.trainer.device == "cpu" or config.trainer.backend != "local":
        yield
        return
    name, before = "CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ[name] = free_gpu(before)
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


def free_gpu(allowed: str | None = None) -> str:
    """The number of the GPU with the least memory in use, among those allowed ("0,2").

    Raises:
        UserError: none is free.
    """
    query = ["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()
    used = {index.strip(): float(memory) for index, memory in (line.split(",") for line in lines)}
    known = {i: m for i, m in used.items() if allowed is None or i in allowed.split(",")}
    best = min(known, key=lambda i: known[i], default=None)
    if best is None or known[best] > _FREE:
        raise UserError("Every GPU is in use: wait for one, or set trainer.device to cpu.")
    return best


@lru_cache(256)
def config_of(folder: Path, _: int) -> RunConfig:
    """The configuration of a run; the second argument is when its file was written."""
    return load(folder / "config.yaml")
