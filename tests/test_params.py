"""Params files: what YAML means here, what it refuses in a sentence, overrides; registries of components."""

import pytest
from cases import table

import rlkit
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.laws import laws
from rlkit.params import override, parse_overrides, parse_yaml, read_yaml, validate
from rlkit.registry import Component, Registry


@pytest.mark.parametrize(*table("params_scalars_mean_what_they_look"))
def test_scalars_mean_what_they_look_like(text, value):
    found = parse_yaml(f"key: {text}")["key"]
    assert found == value and type(found) is type(value)


DEEP = ["a: " + "[" * 1500 + "]" * 1500, "\n".join(f"{' ' * i}a:" for i in range(600))]
LONG = [*((text, "nested too deeply") for text in DEEP), ("a: " + "9" * 5000, "5000 digits")]
COLUMNS, UNREADABLE = table("params_unreadable")


@pytest.mark.parametrize(COLUMNS, [*UNREADABLE, *LONG], ids=range(19))
def test_a_file_that_cannot_be_meant_is_one_sentence(text, message, tmp_path):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_yaml(tmp_path / "a.yaml")
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"{tmp_path}/a.yaml: ")


def test_an_alias_that_is_not_circular_is_a_copy_and_a_byte_order_mark_is_no_part_of_a_key(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfseed: 1\n")
    assert read_yaml(tmp_path / "a.yaml") == {"seed": 1}
    content = parse_yaml("lr: &lr [1.0e-4, 2.0e-4]\nagain: *lr")
    assert content == {"lr": [1e-4, 2e-4], "again": [1e-4, 2e-4]}


@pytest.mark.parametrize(*table("params_override_that_has_no_place"))
def test_an_override_that_has_no_place_is_one_sentence(content, key, message):
    with pytest.raises(UserError, match=message):
        override(content, {key: 3})


def test_overrides_are_typed_by_the_same_rules():
    assert parse_overrides(["lr=1e-4", "x=a=b", "y= [1, 2]", " z =3"]) == {
        "lr": 1e-4, "x": "a=b", "y": [1, 2], "z": 3,
    }  # fmt: skip
    with pytest.raises(UserError, match="occurs twice"):
        parse_overrides(["actor={lr: 1, lr: 2}"])


@pytest.mark.parametrize("name", ["sigmoid", "power", "chinchilla"])
def test_a_law_of_ones_own_does_not_take_a_built_in_name(name):
    with pytest.raises(UserError, match=f"The law '{name}' is registered twice, in rlkit.laws.forms and in"):

        @rlkit.law(name, starts={"a": (1.0,)})
        def mine(C, *, a):
            return a * C

    assert laws[name].function.__module__ == "rlkit.laws.forms"


def test_a_cell_that_runs_twice_registers_its_latest_definition():
    things = Registry("thing")

    def first(): ...
    def second(): ...

    things.register("a")(first)
    assert things.register("a")(second) is things["a"]


def test_a_component_without_a_kind_or_a_name_is_one_sentence():
    things = Registry("thing")
    things.register("world")(Component)
    for kind in ([[[]]], 3, {"a": 1}):
        with pytest.raises(UserError, match="its kind is .*: the thing needs a 'kind', one of world"):
            things.parse({"kind": kind})
    with pytest.raises(UserError, match=r"The thing 'world', Component, has no field kind: write `kind: Lit"):
        things.parse("world")
    with pytest.raises(UserError, match="register needs the name of the thing"):
        things.register(Component)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(*table("params_refused"))
def test_a_configuration_that_cannot_be_is_one_sentence(content, sentence):
    with pytest.raises(UserError, match=sentence) as told:
        validate(RunConfig, content)
    assert "\n" not in str(told.value)
