"""Typed access to a model file: every bad value is refused where it is read."""

from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.spec.keys import Keys


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("4096", "value '4096'; write a whole number"),
        (True, "value True; write a whole number"),
        (4096.0, "value 4096.0; write a whole number"),
        (-1, "value -1; it lies between 1 and 1000000000"),
        (0, "value 0; it lies between 1"),
        (10**12, "value 1000000000000; it lies between 1"),
        ([1], "value .1.; write a whole number"),
    ],
)
def test_what_is_no_width_is_refused_with_place_value_and_remedy(value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=f"file: key 'hidden_size': {message}"):
        Keys({"hidden_size": value}, "file").integer("hidden_size")


@pytest.mark.parametrize("value", ["1", True, float("nan"), float("inf"), -0.5])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="key 'share'"):
        Keys({"share": value}, "file").number("share")


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("flag", 1),
        ("flag", "true"),
        ("text", 1),
        ("integers", 1),
        ("integers", [1, "2"]),
        ("texts", "a"),
        ("texts", [1]),
        ("nested", 1),
        ("objects", [1]),
        ("objects", {}),
    ],
)
def test_every_accessor_refuses_another_type(method: str, value: object) -> None:
    with pytest.raises(SpecError, match="file: key 'a"):
        getattr(Keys({"a": value}, "file"), method)("a")


def test_null_counts_as_absent() -> None:
    assert Keys({"a": None}, "file").integer("a", default=3) == 3


def test_an_alias_is_read_where_the_first_name_is_absent() -> None:
    assert Keys({"n_embd": 768}, "file").integer("hidden_size", "n_embd") == 768


def test_a_missing_key_is_named_and_a_misspelt_one_suggested() -> None:
    with pytest.raises(
        SpecError, match=r"'hidden_size' is missing. Perhaps you meant 'hiden_size'"
    ):
        Keys({"hiden_size": 1}, "file").integer("hidden_size")


def test_an_inner_key_is_named_with_its_path() -> None:
    inner = Keys({"text_config": {"hidden_size": "x"}}, "file").nested("text_config")
    with pytest.raises(SpecError, match=r"key 'text_config\.hidden_size'"):
        inner.integer("hidden_size")


def test_only_a_nested_object_may_leave_a_size_to_its_class() -> None:
    keys = Keys({"text_config": {}}, "file")
    assert keys.nested("text_config").size("hidden_size", default=4096) == 4096
    with pytest.raises(SpecError, match="'hidden_size' is missing"):
        keys.size("hidden_size", default=4096)


def test_defaults_that_were_taken_are_remembered_with_their_path() -> None:
    keys = Keys({"inner": {}, "given": 1}, "file")
    keys.integer("given", default=2)
    keys.flag("bias", default=False)
    keys.nested("inner").integer("width", default=3)
    assert keys.defaults == {"bias": False, "inner.width": 3}
