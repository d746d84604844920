"""The one registration mechanism: names to functions or component classes (verl's own registries aside).

A registry imports the modules that fill it only when it is first asked for a name, so that
`import rlkit` and `rlkit --help` stay light.

    laws = Registry("law", "rlkit.laws.forms")

    @laws.register("power")
    def power(x, *, a, b): ...

A *component* is a frozen pydantic class with a `kind`: its options are its fields, its behaviour is its
methods, and YAML is dispatched on `kind` (`Registry.field()`).
"""

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny, WithJsonSchema

from rlkit.errors import UserError, did_you_mean
from rlkit.seeds import content_hash

T = TypeVar("T")


def _module(thing: Any) -> str:
    """The module that defines a class or function, or the function that an instance wraps."""
    return str(getattr(getattr(thing, "function", thing), "__module__", ""))


PLUGINS = "RLKIT_PLUGINS"
"""The environment variable with the plugins of this process and of those it starts, as PATH has folders."""


def load_plugins(files: Iterable[str]) -> None:
    """Import Python files that register sources, scorers, environments, laws, or algorithms with verl's decorators. The
    processes that this one starts import them, too (graders, verl's workers). A file is imported again when it changed.

    Raises:
        UserError: a file that is not there, or that cannot be imported.
    """
    for file in files:
        path = Path(file).expanduser().resolve()
        if not path.is_file():
            raise UserError(
                f"plugins has {str(file)!r}, and there is no such file from {Path.cwd()}: mend the path."
            )
        name = f"rlkit_plugin_{path.stem}_{content_hash(str(path), 6)}"
        code = path.read_bytes()
        if name in sys.modules and vars(sys.modules[name]).get("__rlkit_code__") == code:
            continue
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module)["__rlkit_code__"], before = code, sys.modules.get(name)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            sys.modules.pop(name) if before is None else sys.modules.update({name: before})
            if isinstance(error, UserError):
                raise
            place = next(
                (
                    f.lineno
                    for f in reversed(traceback.extract_tb(error.__traceback__))
                    if f.filename == str(path)
                ),
                None,
            )
            where = f", line {place or getattr(error, 'lineno', '?')}"
            raise UserError(
                f"The plugin {path}{where} cannot be imported: {type(error).__name__}: {error}."
            ) from None
        known = [known for known in os.environ.get(PLUGINS, "").split(os.pathsep) if known]
        if str(path) not in known:
            os.environ[PLUGINS] = os.pathsep.join([*known, str(path)])


def plugin_versions(files: Iterable[str]) -> dict[str, str]:
    """`plugins`: each file's name and the hash of its content; nothing for no files."""
    paths = [Path(file).expanduser() for file in files]
    words = [f"{path.name}:{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}" for path in paths]
    return {"plugins": ", ".join(words)} if words else {}


class Component(BaseModel):
    """A frozen, strict pydantic class; subclasses add `kind: Literal["name"] = "name"` and fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)


class Registry:
    """Names mapped to objects; unknown names raise a UserError with the nearest known ones.

    Args:
        what: the noun for messages, e.g. "law".
        packages: modules to import at the first look-up; a package's submodules are imported too.
        hint: how to add one, appended to the error for an unknown name.
    """

    def __init__(self, what: str, *packages: str, hint: str = "") -> None:
        self.what, self.hint = what, hint
        self._packages = packages
        self._loaded = False
        self._entries: dict[str, Any] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Decorator: make the object known under each of `names`.

        A module may register a name again (a cell that runs twice); a name of another module's is a UserError.
        """

        def add(thing: T) -> T:
            module = _module(thing)
            if not module.startswith(self._packages):
                self._load()  # so that the names of the package are known to be taken
            for name in names:
                known = self._entries.get(name)
                if known is not None and _module(known) != module:
                    raise UserError(
                        f"The {self.what} {name!r} is registered twice, in {_module(known)} and in {module}: choose "
                        "another name."
                    )
                self._entries[name] = thing
            return thing

        return add

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # set first: the modules being imported may themselves look names up
        try:
            load_plugins(filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)))
            for package in self._packages:
                module = importlib.import_module(package)
                for info in pkgutil.walk_packages(getattr(module, "__path__", []), package + "."):
                    importlib.import_module(info.name)
        except BaseException:
            self._loaded = (
                False  # half a registry would call known names unknown; the next look-up tries again
            )
            raise

    def names(self) -> list[str]:
        self._load()
        return sorted(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._entries

    def __getitem__(self, name: str) -> Any:
        self._load()
        if name not in self._entries:
            known = ", ".join(self.names())
            raise UserError(
                f"Unknown {self.what} {name!r}.{did_you_mean(name, self._entries)} Known: {known}. {self.hint}".strip()
            )
        return self._entries[name]

    def parse(self, value: Any) -> Any:
        """A component from a mapping with `kind` (or from the kind alone); components pass through."""
        if isinstance(value, Component):
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict) or "kind" not in value:
            raise ValueError(f"a {self.what} needs a 'kind', one of {', '.join(self.names())}")
        if not isinstance(value["kind"], str):
            raise ValueError(f"its kind is {value['kind']!r}: write one of {', '.join(self.names())}")
        component = self[value["kind"]]
        for name in value:
            if name not in component.model_fields:
                near = did_you_mean(name, component.model_fields)
                raise ValueError(
                    f"{value['kind']} has no key {name!r}.{near} It has {', '.join(component.model_fields)}"
                )
        return component.model_validate(value)

    def field(self) -> Any:
        """The pydantic type of a field that holds one component of this registry."""
        return Annotated[
            SerializeAsAny[Component],
            BeforeValidator(self.parse),
            WithJsonSchema({"type": "object", "required": ["kind"], "title": self.what}),
        ]
