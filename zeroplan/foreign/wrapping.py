"""Which classes FSDP wraps, against those that the model has."""

from zeroplan.errors import SpecError
from zeroplan.foreign.draft import Asked, Draft
from zeroplan.foreign.layers import layer_class
from zeroplan.rows import significant
from zeroplan.units import GIGA, MEGA
from zeroplan.workload.load import load_model

__all__ = ["check_classes"]


def check_classes(written: object, draft: Draft, asked: Asked) -> None:
    """Compare the classes that a file names with the layers of the model.

    A text holds several with commas between them (`set_auto_wrap_policy`, accelerate 1.15), which
    is what accelerate itself stops at where the model has none of that name.
    """
    names = _names(written)
    source = asked.value("model.source")
    own = layer_class(str(source)) if source is not None else None
    if own is None:
        if names:
            draft.remark(
                f"wraps {', '.join(names)}: not compared, the model's layer class is not known"
            )
        return
    if not names:
        draft.remark(f"no layer class is named: the model's own, {own}{_size(str(source))}")
        return
    if own not in names:
        draft.remark(
            f"wraps {', '.join(names)}, but the layers of {source} are {own}: nothing would get "
            f"wrapped. Estimated with {own}"
        )
        return
    extra = [name for name in names if name != own]
    if extra:
        draft.remark(
            f"wraps {own}; {', '.join(extra)} beside it are estimated as part of the root unit"
        )


def _names(written: object) -> list[str]:
    parts = written.split(",") if isinstance(written, str) else written
    if not isinstance(parts, list):
        return []
    return [str(part).strip() for part in parts if str(part).strip()]


def _size(source: str) -> str:
    """Say how many parameters a layer has; nothing where the model cannot be counted."""
    try:
        count = load_model(source)
    except SpecError:
        return ""
    each = count.non_embedding_parameters / count.blocks
    scale, word = (GIGA, "billion") if each >= GIGA else (MEGA, "million")
    return f", about {significant(each / scale)} {word} parameters each"
