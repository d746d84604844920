"""Params files: what YAML means here, what it refuses in a sentence, and overrides."""

import pytest

from rlkit.errors import UserError
from rlkit.params import override, parse_overrides, parse_yaml, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("on", "on"), ("1e-5", 1e-5), ("12:30", "12:30"), ("12:30:00", "12:30:00"), ("007", 7),
        ("2024-01-01", "2024-01-01"), ("1_000", 1000), ("true", True), ("~", None), ("", None), (".inf", float("inf")),
        ("[1, 2.5, a]", [1, 2.5, "a"]), ("+5", 5), ("1.e3", 1000.0), ("{<<: {a: 1}, b: 2}", {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_scalars_mean_what_they_look_like(text, value):
    found = parse_yaml(f"key: {text}")["key"]
    assert found == value and type(found) is type(value)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nactor: {}\nseed: 2", r"line 3, column 1: the key 'seed' occurs twice in one section"),
        ("actor:\n  optim: {lr: 1}\nactor:\n  ppo_epochs: 2", r"line 3.*'actor' occurs twice"),
        ("rollout: {n: 4, n: 6}", r"'n' occurs twice"),
        (BOMB, r"has more than 1,000,000 values once its aliases"),
        ("a: &a [*a]", r"is an alias of a section or list that it stands in"),
        ("run: &r {model: *r}", r"run.model is an alias of a section"),
        ("a: " + "[" * 1500 + "]" * 1500, r"nested too deeply"),
        ("\n".join(f"{' ' * i}a:" for i in range(600)), r"nested too deeply"),
        ("a: " + "9" * 5000, r"5000 digits"),
        ("a: !!int abc", r"invalid literal for int.*'abc'"),
        ("a: !!float abc", r"'abc'"),
        ("a: !!int ''", r"Malformed YAML: string index"),
        ("a: !!set {b}", r"a is a set: write text"),
        ("a: !!binary aGk=", r"a is a bytes: write text"),
        ("a: !foo x", r"line 1, column 4: could not determine a constructor"),
        ("a: !!python/object/apply:os.getcwd []", r"could not determine a constructor"),
        ("? [a, b]\n: 1", r"has the key \('a', 'b'\)"),
        ('a: "\\ud800"', r"a holds half of a surrogate pair"),
        ("a: [1", r"line 1, column"),
        ("a\x00: 1", r"Malformed YAML"),
        ("a: 1\n---\nb: 1", r"Malformed YAML"),
    ],
    ids=range(21),
)  # fmt: skip
def test_a_file_that_cannot_be_meant_is_one_sentence(text, message, tmp_path):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_yaml(tmp_path / "a.yaml")
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"{tmp_path}/a.yaml: ")


def test_an_alias_that_is_not_circular_is_a_copy():
    content = parse_yaml("lr: &lr [1.0e-4, 2.0e-4]\nagain: *lr")
    assert content == {"lr": [1e-4, 2e-4], "again": [1e-4, 2e-4]}


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfseed: 1\n")
    assert read_yaml(tmp_path / "a.yaml") == {"seed": 1}


@pytest.mark.parametrize(
    ("content", "key", "message"),
    [
        ({"a": [1, 2]}, "a.0.b", "'0' holds the value 1, not a section"),
        ({"a": [1, 2]}, "a.-1", "'-1' is no index"),
        ({"a": 5}, "a.b", "'a' holds the value 5"),
        ({}, "a..b", "single dots"),
        ({}, "a.", "single dots"),
        ({}, ".a", "single dots"),
    ],
)
def test_an_override_that_has_no_place_is_one_sentence(content, key, message):
    with pytest.raises(UserError, match=message):
        override(content, {key: 3})


def test_overrides_are_typed_by_the_same_rules():
    assert parse_overrides(["lr=1e-4", "x=a=b", "y= [1, 2]", " z =3"]) == {
        "lr": 1e-4, "x": "a=b", "y": [1, 2], "z": 3,
    }  # fmt: skip
    with pytest.raises(UserError, match="occurs twice"):
        parse_overrides(["actor={lr: 1, lr: 2}"])
