"""Registries: a name belongs to the module that registered it."""

import pytest

import rlkit
from rlkit.config import RunConfig
from rlkit.errors import UserError
from rlkit.laws import laws
from rlkit.params import validate
from rlkit.registry import Component, Registry


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


@pytest.mark.parametrize("kind", [[[[]]], 3, {"a": 1}])
def test_a_kind_that_is_no_text_is_one_sentence(kind):
    things = Registry("thing")
    things.register("a")(Component)
    with pytest.raises(ValueError, match="its kind is .*: the thing needs a 'kind', one of a"):
        things.parse({"kind": kind})


def test_a_component_without_a_kind_or_a_name_is_one_sentence():
    things = Registry("thing")
    things.register("world")(Component)
    with pytest.raises(UserError, match=r"The thing 'world', Component, has no field kind: write `kind: Lit"):
        things.parse("world")
    with pytest.raises(UserError, match="register needs the name of the thing"):
        things.register(Component)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("weight", [float("inf"), float("nan")])
def test_a_component_has_finite_numbers(weight):
    with pytest.raises(UserError, match=r"data\.train.*weight.*finite"):
        validate(RunConfig, {"data": {"train": [{"kind": "string_trace", "weight": weight}]}})
