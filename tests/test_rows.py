"""Numbers and tables read well and never lie about their digits."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.rows import Column, Table, html, marked, plain, readable, significant, text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (1, "1.00"),
        (0.012345, "0.0123"),
        (9.996, "10.0"),
        (79.64, "79.6"),
        (999.6, "1,000"),
        (123_456, "123,000"),
        (-53, "-53.0"),
    ],
)
def test_numbers_have_three_significant_digits(value: float, shown: str) -> None:
    assert significant(value) == shown


@given(st.floats(1e-12, 1e15))
def test_rounding_changes_no_number_by_more_than_half_a_percent(value: float) -> None:
    assert float(significant(value).replace(",", "")) == pytest.approx(value, rel=0.005)


def test_nothing_known_is_a_dash() -> None:
    assert text(None) == "-"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (80 * 2**30, "B", "80.0 GiB"),
        (3.35e12, "B/s", "3,350 GB/s"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (5e-6, "s", "5.00 us"),
        (0.5, "1", "0.500"),
        (7, "ranks", "7.00 ranks"),
    ],
)
def test_figures_are_read_in_the_units_people_use(value: float, unit: str, shown: str) -> None:
    assert readable(value, unit) == shown


def test_html_escapes_what_it_shows_and_heads_its_columns() -> None:
    table = Table(
        title="<b>",
        columns=(Column(name="a<b", unit="GiB"), Column(name="words", is_text=True)),
        rows=((1.5, "<script>"), (None, "&")),
    )
    assert html(table) == (
        "<table><caption>&lt;b&gt;</caption><thead><tr>"
        '<th scope="col">a&lt;b [GiB]</th><th scope="col" class="words">words</th></tr></thead><tbody>'
        '<tr><td>1.50</td><td class="words">&lt;script&gt;</td></tr>'
        '<tr><td>-</td><td class="words">&amp;</td></tr></tbody></table>'
    )


def test_what_stands_between_backticks_is_code() -> None:
    assert marked("by `a <b>` & `c`") == "by <code>a &lt;b&gt;</code> &amp; <code>c</code>"
    assert marked("one ` alone") == "one ` alone"
    table = Table(title="t", columns=(Column(name="c", is_text=True),), rows=(("`run`",),))
    assert "<code>run</code>" in html(table)


def test_words_that_come_first_head_their_row() -> None:
    table = Table(
        title="t", columns=(Column(name="a", is_text=True), Column(name="b")), rows=(("x", 2.0),)
    )
    assert '<tr><th scope="row">x</th><td>2.00</td></tr>' in html(table)


@dataclass(frozen=True)
class _Inner:
    b: int = 1


@dataclass(frozen=True)
class _Outer:
    z: tuple[_Inner, ...] = (_Inner(), _Inner(2))
    a: _Inner | None = None


def test_records_become_plain_values_in_the_order_of_their_fields() -> None:
    assert plain(_Outer()) == {"z": [{"b": 1}, {"b": 2}], "a": None}
    assert list(plain(_Outer())) == ["z", "a"]
