"""How many images a sequence has, and how many tokens of each a vision tower sees."""

from zeroplan.errors import SpecError
from zeroplan.records import replace
from zeroplan.spec.architecture import Architecture, Attention, Block, Stack, Sublayer

__all__ = ["image_note", "sees_images", "with_images"]


def image_note(count: int, tokens: int | None) -> str:
    """Say what goes through a tower."""
    what = "one image" if count == 1 else f"{count} images"
    verb = "goes" if count == 1 else "go"
    return f"{what} of {tokens} tokens per sequence {verb} through the vision tower"


def sees_images(architecture: Architecture) -> bool:
    """Return whether a tower reads images."""
    return any(stack.kind == "vision" for stack in architecture.stacks)


def with_images(architecture: Architecture, count: int, tokens: int | None) -> Architecture:
    """Let a sequence have so many images of so many tokens; None leaves the model file's tokens.

    The language model's sequence length holds its own image tokens and does not change.
    """
    towers = [s for s in architecture.stacks if s.kind == "vision" and s.positions is not None]
    if not towers or (count == 1 and tokens is None):
        return architecture
    usual = towers[0].positions or 1
    each = tokens or usual
    _verify_tokens(towers[0], usual, each)
    notes = (note for note in architecture.assumptions if note != image_note(1, usual))
    return replace(
        architecture,
        stacks=tuple(_widened(stack, usual, count, each) for stack in architecture.stacks),
        assumptions=(*notes, image_note(count, each)),
    )


def _verify_tokens(tower: Stack, usual: int, each: int) -> None:
    """Refuse fewer tokens than what follows the tower makes one of."""
    least = max((p.rate[1] for p in tower.tail if p.rate[1] != usual), default=1)
    if each < least:
        raise SpecError(
            f"training.image_tokens = {each}: {tower.name} merges {least} tokens to one; give it "
            "more."
        )


def _widened(stack: Stack, usual: int, count: int, each: int) -> Stack:
    """Let a tower see so many images; what pools a whole image still does (CLIP)."""
    positions = count * each
    if stack.kind == "vision":
        tail = tuple(
            replace(p, rate=(p.rate[0], each)) if p.rate[1] == usual else p for p in stack.tail
        )
        return replace(stack, positions=positions, tail=tail)
    changed = {block: _attending(block, usual, positions) for block in dict.fromkeys(stack.blocks)}
    return replace(stack, blocks=tuple(changed[block] for block in stack.blocks))


def _attending(block: Block, usual: int, positions: int) -> Block:
    """Let cross-attention see as many more states as the tower has positions."""
    parts = tuple(_seeing(part, usual, positions) for part in block.sublayers)
    return block if parts == block.sublayers else replace(block, sublayers=parts)


def _seeing(part: Sublayer, usual: int, positions: int) -> Sublayer:
    attention = part.component
    if not isinstance(attention, Attention) or attention.memory_positions is None:
        return part
    memory = attention.memory_positions * positions // usual
    return replace(part, component=replace(attention, memory_positions=memory))
