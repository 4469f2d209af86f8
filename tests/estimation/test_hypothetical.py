"""A link that no machine has at the size that is asked for is labelled."""

import pytest

from zeroplan.estimation import estimate
from zeroplan.report.answer import answer_text
from zeroplan.report.terminal import Page
from zeroplan.spec.toml import load_spec


@pytest.mark.parametrize(
    ("keys", "labelled"),
    [
        ({"gpus": 64, "link": "nvlink"}, True),
        ({"gpus": 64, "gpus_per_node": 64}, True),
        ({"gpus": 8, "link": "nvlink"}, False),
        ({"gpus": 64, "link": "ib"}, False),
        ({"gpus": 72, "gpu": "gb200", "link": "nvlink"}, False),
        ({"gpus": 144, "gpu": "gb200", "link": "nvlink"}, True),
        ({"gpus": 16, "gpus_per_node": 16, "gpu": "a100-sxm4-40gb"}, False),
        ({"gpus": 16, "gpus_per_node": 16, "gpu": "a10"}, False),
        ({"gpus": 16, "gpu": "h100-pcie-80gb", "link": "pcie5"}, True),
    ],
)
def test_a_domain_larger_than_any_machine_has_is_hypothetical(
    keys: dict[str, object], labelled: bool
) -> None:
    """A DGX H100 has 8 GPUs, NVL72 has 72, a2-megagpu-16g 16."""
    run = load_spec(model="1b", strategy="fsdp2", **keys)
    answer = estimate(run)
    assert bool(answer.hypothetical) == labelled
    page = answer_text(answer, run, Page(width=80))
    verdict = page.partition("\nNotes\n")[0]
    assert ("Hypothetical: one domain of" in verdict) == labelled
