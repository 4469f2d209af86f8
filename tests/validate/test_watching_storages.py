"""The ledger counts what lives, as the CUDA caching allocator would."""

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # PyTorch's own, when its parts are imported
]

torch = pytest.importorskip("torch")

from zeroplan.validate.pytorch.environment import fake_tensors  # noqa: E402
from zeroplan.validate.pytorch.ledger import Ledger  # noqa: E402


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """A ledger that watches, in its forward phase."""
    with fake_tensors() as mode:
        kept = Ledger(mode)
        kept.begin("forward")
        with kept, kept.following_resizes():
            yield kept


def test_a_tensor_lives_as_long_as_something_refers_to_it(ledger: Ledger) -> None:
    x = torch.empty(1024)
    view = x[:10]
    assert ledger.total == 4096
    del x
    assert ledger.total == 4096
    del view
    assert ledger.total == 0
    assert ledger.peaks["forward"][0] == 4096


def test_sizes_are_rounded_up_to_512_bytes(ledger: Ledger) -> None:
    kept = [torch.empty(1), torch.empty(129)]
    assert ledger.total == 512 + 1024
    assert len(kept) == 2


def test_a_storage_that_is_resized_is_followed(ledger: Ledger) -> None:
    x = torch.empty(1024)
    x.untyped_storage().resize_(0)
    assert ledger.total == 0
    x.untyped_storage().resize_(8192)
    assert ledger.total == 8192


def test_a_number_made_of_python_lives_on_the_host(ledger: Ledger) -> None:
    step = torch.tensor(1.0)
    step += 1
    assert ledger.total == 0


def test_phases_have_peaks_of_their_own(ledger: Ledger) -> None:
    kept = torch.empty(1024)
    ledger.begin("backward")
    more = torch.empty(1024)
    del more
    ledger.begin("optimizer")
    assert {name: peak for name, (peak, _) in ledger.peaks.items()} == {
        "forward": 4096,
        "backward": 8192,
        "optimizer": 4096,
    }
    assert kept is not None


def _backward_peak(ledger: Ledger, loss: Any) -> int:
    ledger.begin("backward")
    before = ledger.total
    loss.backward()
    return ledger.peaks["backward"][0] - before


def test_gradients_that_autograd_adds_in_place_are_not_counted_twice(ledger: Ledger) -> None:
    """Two products hand x a gradient each; unwatched, the second is added to the first."""
    x = torch.empty(1024, requires_grad=True)
    y = x * 1.0
    peak = _backward_peak(ledger, (y * 2.0).sum() + (y * 3.0).sum())
    assert peak < 3 * 4096


def test_gradients_that_it_cannot_add_in_place_are(ledger: Ledger) -> None:
    """A linear layer's gradient of its input is a view: the sum needs a third tensor."""
    x = torch.empty(2, 16, 32, requires_grad=True)
    weights = [torch.empty(32, 32, requires_grad=True) for _ in range(2)]
    y = x * 1.0
    loss = sum(torch.nn.functional.linear(y, weight).sum() for weight in weights)
    assert _backward_peak(ledger, loss) > 3 * 4096
