"""Check whole folders of profiles, which `estimate` never reads at once."""

from collections.abc import Callable, Iterator

from zeroplan.errors import SpecError, perhaps
from zeroplan.hardware.catalogue import Catalogue
from zeroplan.hardware.profile import Gpu, Link, Node, Profile
from zeroplan.hardware.quantity import Choice

__all__ = ["faults"]


def faults(catalogue: Catalogue) -> Iterator[str]:
    """List what is wrong with the profiles, a line each."""
    try:
        catalogue.sources()
    except SpecError as error:
        yield str(error)
        return
    for ids, read in (
        (catalogue.gpu_ids(), catalogue.gpu),
        (catalogue.link_ids(), catalogue.link),
        (catalogue.node_ids(), catalogue.node),
    ):
        for profile_id in ids:
            yield from _profile_faults(catalogue, read, profile_id)


def _profile_faults(
    catalogue: Catalogue, read: Callable[[str], Profile], profile_id: str
) -> Iterator[str]:
    try:
        profile = read(profile_id)
    except SpecError as error:
        yield str(error)
        return
    for fault in _reference_faults(catalogue, profile):
        yield f"{profile_id}.toml: {fault}"


def _reference_faults(catalogue: Catalogue, profile: Profile) -> Iterator[str]:
    match profile:
        case Gpu():
            yield from _link_faults(catalogue, "intra_link", profile.intra_link, "node")
            yield from _link_faults(catalogue, "node_link", profile.node_link, "cluster")
            for alias, choice in profile.usual_links.items():
                scope = "node" if alias == "nvlink" else "cluster"
                yield from _link_faults(catalogue, f"usual_links.{alias}", choice, scope)
        case Link():
            has_nics = (profile.nics_per_gpu is None) != (profile.nics_per_node is None)
            if has_nics != (profile.scope == "cluster"):
                yield "a link between nodes has nics_per_gpu or nics_per_node, another has none."
        case Node():
            yield from _link_faults(catalogue, "intra_link", profile.intra_link, "node")
            yield from _link_faults(catalogue, "node_link", profile.node_link, "cluster")
            if profile.gpu.value not in catalogue.gpu_ids():
                known = perhaps(profile.gpu.value, catalogue.gpu_ids())
                yield f"gpu: {profile.gpu.value!r} is not known.{known}"
            if profile.usd_per_hour is not None and not profile.price_date:
                yield "price_date is missing: a price without a date says nothing."


def _link_faults(catalogue: Catalogue, key: str, choice: Choice, scope: str) -> Iterator[str]:
    if choice.value not in catalogue.link_ids():
        known = perhaps(choice.value, catalogue.link_ids())
        yield f"{key}: link {choice.value!r} is not known.{known}"
        return
    try:
        found = catalogue.link(choice.value).scope
    except SpecError:
        return  # reported with the file of the link
    if found != scope:
        yield f"{key}: {choice.value!r} has scope {found!r}, not {scope!r}."
