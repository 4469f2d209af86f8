"""Records are what the standard library's dataclasses are, however many are made."""

from typing import Any

import pytest

from zeroplan.records import FEW, dataclass, field, replace


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    bytes: int = 0
    tags: list[str] = field(default_factory=list, kw_only=True)


MANY = 2 * FEW


def test_the_first_records_and_later_ones_are_alike() -> None:
    for _ in range(MANY):
        part = _Part("weight", 4, tags=["a"])
        assert vars(part) == {"name": "weight", "bytes": 4, "tags": ["a"]}
        assert part == _Part(name="weight", bytes=4, tags=["a"])
        assert _Part("bias") == _Part("bias", 0, tags=[])
        assert _Part("bias").tags is not _Part("bias").tags
        assert replace(part, bytes=8).bytes == 8


@pytest.mark.parametrize(
    ("values", "named", "complaint"),
    [
        ((), {}, "missing 1 required positional argument: 'name'"),
        (("weight", 4, []), {}, "takes from 2 to 3 positional arguments"),
        (("weight",), {"name": "bias"}, "multiple values for argument 'name'"),
        (("weight",), {"size": 4}, "unexpected keyword argument 'size'"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    values: tuple[Any, ...], named: dict[str, Any], complaint: str
) -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        name: str
        bytes: int = 0
        tags: list[str] = field(default_factory=list, kw_only=True)

    for _ in range(2):
        with pytest.raises(TypeError, match=complaint):
            Fresh(*values, **named)


def test_a_record_checks_itself_once_it_is_filled() -> None:
    @dataclass(slots=True)
    class Even:
        number: int
        half: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            self.half = self.number // 2

    assert [Even(n).half for n in range(MANY)] == [n // 2 for n in range(MANY)]
