"""Every kind of chart looks as it did when somebody last looked at it.

`pytest -n 0 --mpl-generate-path=tests/report/charts/baseline tests/report/charts/test_baselines.py`
renews the pictures; look at each before it is committed. Figures are invented, so that no constant
changes a picture, and texts are left out, so that no font does.
"""

from collections.abc import Callable

import pytest
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

from zeroplan.cli.plot import KINDS
from zeroplan.report.charts.picture import Chart, Kind, figure_of

DPI = 64

Made = Callable[[str, int, float, str], tuple[Kind, Chart]]


@pytest.mark.mpl_image_compare(
    baseline_dir="baseline", style="default", tolerance=1, savefig_kwargs={"dpi": DPI}
)
@pytest.mark.parametrize("name", KINDS)
def test_a_chart_looks_as_it_did(name: str, made_up: Made) -> Figure:
    figure = figure_of(*made_up(name, 3, 1.0, "a model"))
    figure.set_layout_engine(None)  # the place of the axes would follow from texts
    figure.subplots_adjust(top=0.72)
    figure.set_size_inches(*(round(DPI * each) / DPI for each in figure.get_size_inches()))
    for each in (*figure.findobj(Text), *figure.findobj(Legend)):
        each.set_visible(False)
    return figure
