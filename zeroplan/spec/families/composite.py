"""How a vision-language model is put together: an image tower, a projector, a language model."""

from collections.abc import Mapping
from dataclasses import replace

from zeroplan.spec.architecture import Architecture, Stack
from zeroplan.spec.families import family, rule
from zeroplan.spec.families.experts import refuse_unread_experts
from zeroplan.spec.images import image_note
from zeroplan.spec.keys import Keys

__all__ = ["compose", "filled", "language_model", "tied"]


def filled(keys: Keys, defaults: Mapping[str, object]) -> Keys:
    """Return the keys with a composite class's own defaults where its nested object is silent."""
    missing = {name: value for name, value in defaults.items() if not keys.has(name)}
    inner = Keys({**keys.mapping, **missing}, keys.place, keys.path)
    inner.defaults = keys.defaults
    inner.defaults.update({keys.path + name: value for name, value in missing.items()})
    return inner


def language_model(
    keys: Keys,
    name: str,
    default: str,
    defaults: Mapping[str, object] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Architecture:
    """Read `text_config` by the rule of the family that it names; `default` where it names none.

    `renamed` gives the family whose rule serves a text configuration that only occurs inside.
    """
    inner = filled(keys.nested("text_config"), defaults or {})
    stated = inner.model_type or default
    known = family((renamed or {}).get(stated, stated), inner.class_name)
    if known is None:
        raise inner.fault("model_type", stated, "no rule for this language model")
    found = rule(known)(inner, name)
    refuse_unread_experts(inner)
    return found


def tied(keys: Keys, text: Architecture) -> bool:
    """Return whether the head is tied: older files say so in `text_config`, newer ones outside."""
    inside = text.head is not None and text.head.tied
    return keys.flag("tie_word_embeddings", default=False) or inside


def compose(
    keys: Keys, tower: Stack, text: Architecture, *, ties: bool | None = None
) -> Architecture:
    """Put an image tower (with its projector) before a language model."""
    head = text.head
    if head is not None and ties is not None:
        head = replace(head, tied=ties)
    return replace(
        text,
        model_type=keys.model_type,
        class_name=keys.class_name,
        stacks=(tower, *text.stacks),
        head=head,
        assumptions=(*text.assumptions, image_note(1, tower.positions)),
    )
