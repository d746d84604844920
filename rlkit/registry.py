"""The one registration mechanism: names to functions or component classes (verl's own registries aside).

A registry imports the modules that fill it only when it is first asked for a name, so that `rlkit --help` stays light.
A *component* is a frozen pydantic class with a `kind`: its options are its fields, its behaviour is its methods, and
YAML is dispatched on `kind` (`Registry.field()`).
"""

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
from rlkit.params import SentencesMeta, validate
from rlkit.seeds import content_hash, file_hash

T = TypeVar("T")


def _module(thing: Any) -> str:
    """The module that defines a class or function, or the function that an instance wraps."""
    return str(getattr(getattr(thing, "function", thing), "__module__", ""))


PLUGINS = "RLKIT_PLUGINS"
"""The environment variable with the plugins of this process and of those it starts, as PATH has folders."""


def plugins_named() -> list[str]:
    """The plugins of this process."""
    return list(filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)))


def load_plugins(files: Iterable[str]) -> None:
    """Import Python files that register sources, scorers, environments, laws, or algorithms with verl's decorators. The
    processes that this one starts import them, too (graders, verl's workers). A file is imported again when it changed;
    one that is not there, or cannot be imported, is a UserError."""
    for file in files:
        path = Path(file).expanduser().resolve()
        if not path.is_file():
            raise UserError(f"plugins has {str(file)!r}, which is no file from {Path.cwd()}: mend the path.")
        name, code = f"rlkit_plugin_{path.stem}_{content_hash(str(path), 6)}", path.read_bytes()
        if getattr(sys.modules.get(name), "__rlkit_code__", None) == code:
            continue
        spec: Any = importlib.util.spec_from_file_location(name, path)
        module: Any = importlib.util.module_from_spec(spec)
        module.__rlkit_code__ = code
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            if isinstance(error, UserError):
                raise
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
            where = f", line {[*lines, getattr(error, 'lineno', '?')][0]}"
            problem = f"{type(error).__name__}: {error}"
            raise UserError(f"The plugin {path}{where} cannot be imported: {problem}.") from None
        os.environ[PLUGINS] = os.pathsep.join(dict.fromkeys([*plugins_named(), str(path)]))


def plugin_versions(files: Iterable[str]) -> dict[str, str]:
    """`plugins`: each file's name and the hash of its content; nothing for no files."""
    paths = [Path(file).expanduser() for file in files]
    words = [f"{path.name}:{file_hash(path)[:12]}" for path in paths]
    return {"plugins": ", ".join(words)} if words else {}


class Component(BaseModel, metaclass=SentencesMeta):
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

        if not names or not all(isinstance(name, str) for name in names):
            raise UserError(f"register needs the name of the {self.what}: @….register('my_name').")

        def add(thing: T) -> T:
            module = _module(thing)
            if not module.startswith(self._packages):
                self._load()  # so that the names of the package are known to be taken
            for name in names:
                other = _module(self._entries.get(name, thing))
                if other != module:
                    told = f"The {self.what} {name!r} is registered twice, in {other} and in {module}"
                    raise UserError(f"{told}: choose another name.")
                self._entries[name] = thing
            return thing

        return add

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # set first: the modules being imported may themselves look names up
        try:
            load_plugins(plugins_named())
            for package in self._packages:
                module = importlib.import_module(package)
                for info in pkgutil.walk_packages(getattr(module, "__path__", []), package + "."):
                    importlib.import_module(info.name)
        except BaseException:
            self._loaded = False  # else half a registry would call known names unknown
            raise

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._entries))

    def __getitem__(self, name: str) -> Any:
        self._load()
        if name not in self._entries:
            near, known = did_you_mean(name, self._entries), ", ".join(self)
            raise UserError(f"Unknown {self.what} {name!r}.{near} Known: {known}. {self.hint}".strip())
        return self._entries[name]

    def parse(self, value: Any) -> Any:
        """A component from a mapping with `kind`, or from the kind alone; components pass through. Raises UserError."""
        return value if isinstance(value, Component) else validate(*self._chosen(value))

    def _nested(self, value: Any) -> Any:
        """As `parse`, in the validation of what holds it, which then tells the key."""
        if isinstance(value, Component):
            return value
        component, content = self._chosen(value)
        return component.model_validate(content)

    def _chosen(self, value: Any) -> tuple[Any, dict[str, Any]]:
        """The class that a mapping or a kind names, and the mapping."""
        value = {"kind": value} if isinstance(value, str) else value
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str):
            given = "" if kind is None else f"its kind is {kind!r}: "
            raise UserError(f"{given}the {self.what} needs a 'kind', one of {', '.join(self)}.")
        component = self[kind]
        fields = getattr(component, "model_fields", {})
        if "kind" not in fields:
            fix = f"write `kind: Literal[{kind!r}] = {kind!r}` in it"
            raise UserError(f"The {self.what} {kind!r}, {component.__name__}, has no field kind: {fix}.")
        if unknown := [name for name in value if name not in fields]:
            near = did_you_mean(unknown[0], fields)
            raise UserError(f"{kind} has no key {unknown[0]!r}.{near} It has {', '.join(fields)}.")
        return component, value

    def field(self) -> Any:
        """The pydantic type of a field that holds one component of this registry."""
        return Annotated[
            SerializeAsAny[Component],
            BeforeValidator(self._nested),
            WithJsonSchema({"type": "object", "required": ["kind"], "title": self.what}),
        ]
