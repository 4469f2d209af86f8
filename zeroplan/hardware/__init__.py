"""What hardware can do: GPUs, links and nodes, each number with its kind and source."""

from zeroplan.hardware.catalogue import Catalogue, load_catalogue, usual_link
from zeroplan.hardware.profile import Gpu, Link, Node
from zeroplan.hardware.quantity import Choice, Quantity

__all__ = [
    "Catalogue",
    "Choice",
    "Gpu",
    "Link",
    "Node",
    "Quantity",
    "load_catalogue",
    "usual_link",
]
