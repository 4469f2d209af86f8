"""A decoder built from an architecture's record, so that what is run is what was predicted."""

import torch
from torch import nn

from zeroplan.errors import MissingPartError
from zeroplan.spec import architecture
from zeroplan.validate.pytorch.attention import Attention, rotary_tables
from zeroplan.validate.pytorch.layers import Linear, Mlp, Norm
from zeroplan.workload.attention import turns_wide
from zeroplan.workload.batch import Batch

__all__ = ["Decoder"]

Tables = tuple[torch.Tensor, ...]


class Sublayer(nn.Module):
    """A residual branch with its norms."""

    def __init__(self, part: architecture.Sublayer, batch: Batch) -> None:
        super().__init__()
        eager = batch.norm == "eager"
        inner = part.component
        self.norm = Norm(part.norm, eager=eager) if part.norm else None
        if isinstance(inner, architecture.Attention):
            self.inner: nn.Module = Attention(inner, batch)
        elif isinstance(inner, architecture.Mlp):
            self.inner = Mlp(inner, eager=eager)
        else:
            raise MissingPartError(f"zeroplan's own module has no {type(inner).__name__}")
        self.attends = isinstance(inner, architecture.Attention)
        self.post_norm = Norm(part.post_norm, eager=eager) if part.post_norm else None
        self.residual_norm = Norm(part.residual_norm, eager=eager) if part.residual_norm else None

    def forward(self, x: torch.Tensor, tables: Tables, *, normed: bool = False) -> torch.Tensor:
        """Return what is added to the residual stream."""
        y = x if self.norm is None or normed else self.norm(x)
        y = self.inner(y, tables) if self.attends else self.inner(y)
        return y if self.post_norm is None else self.post_norm(y)


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, block: architecture.Block, batch: Batch) -> None:
        super().__init__()
        if block.extras:
            raise MissingPartError(f"zeroplan's own module has no {block.extras[0].name}")
        self.sublayers = nn.ModuleList(Sublayer(part, batch) for part in block.sublayers)
        self.parallel, self.shared_norm = block.parallel, block.shared_norm

    def forward(self, x: torch.Tensor, *tables: torch.Tensor) -> torch.Tensor:
        """Run the branches one after the other, or side by side."""
        if self.parallel:
            return self._side_by_side(x, tables)
        for part in self.sublayers:
            x = x + part(x, tables)
            if part.residual_norm is not None:
                x = part.residual_norm(x)
        return x

    def _side_by_side(self, x: torch.Tensor, tables: Tables) -> torch.Tensor:
        shared = self.sublayers[0].norm(x) if self.shared_norm else None
        out = x
        for part in self.sublayers:
            out = out + (part(x, tables) if shared is None else part(shared, tables, normed=True))
        return out


class Embeddings(nn.Module):
    """Token rows, and position rows where positions are learned."""

    def __init__(self, stack: architecture.Stack, batch: Batch) -> None:
        super().__init__()
        self.tables = nn.ModuleDict()
        for table in stack.embeddings:
            if table.kind not in ("token", "position") or table.projection is not None:
                raise MissingPartError(f"zeroplan's own module has no embedding {table.name!r}")
            self.tables[table.kind] = nn.Embedding(table.rows, table.width)
        eager = batch.norm == "eager"
        self.norm = Norm(stack.embedding_norm, eager=eager) if stack.embedding_norm else None

    @property
    def weight(self) -> nn.Parameter:
        """The token table, which a tied head shares."""
        return self.tables["token"].weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look rows up."""
        x = self.tables["token"](ids)
        if "position" in self.tables:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
            x = x + self.tables["position"](positions)
        return x if self.norm is None else self.norm(x)


class Decoder(nn.Module):
    """Embeddings, blocks, norm and head."""

    def __init__(self, model: architecture.Architecture, batch: Batch, dtype: torch.dtype) -> None:
        super().__init__()
        stack, head = _parts(model)
        self.embeddings = Embeddings(stack, batch)
        self.blocks = nn.ModuleList(Block(block, batch) for block in stack.blocks)
        eager = batch.norm == "eager"
        self.norm = Norm(stack.final_norm, eager=eager) if stack.final_norm else nn.Identity()
        self.head = Linear(head.hidden, head.rows, bias=head.bias)
        if head.tied:
            self.head.weight = self.embeddings.weight
        width = _rotary_width(stack)
        parts = (part.component for block in stack.blocks for part in block.sublayers)
        precise = torch.float32 if any(map(turns_wide, parts)) else dtype
        tables = rotary_tables(batch, width, precise) if width else ()
        self.n_tables = len(tables)
        for index, table in enumerate(tables):
            self.register_buffer(f"table_{index}", table, persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        tables = [getattr(self, f"table_{index}") for index in range(self.n_tables)]
        x = self.embeddings(ids)
        for block in self.blocks:
            x = block(x, *tables)
        return self.head(self.norm(x))


def _parts(model: architecture.Architecture) -> tuple[architecture.Stack, architecture.Head]:
    head = model.head
    if len(model.stacks) > 1:
        raise MissingPartError("zeroplan's own module has one tower only")
    if head is None or head.transform is not None or head.pooled or head.extras:
        raise MissingPartError("zeroplan's own module has a plain vocabulary head only")
    (stack,) = model.stacks
    if stack.stem or stack.tail or stack.extras:
        raise MissingPartError("zeroplan's own module reads tokens only")
    return stack, head


def _rotary_width(stack: architecture.Stack) -> int:
    return max(
        (
            part.component.rotary_dim or part.component.head_dim
            for block in stack.blocks
            for part in block.sublayers
            if isinstance(part.component, architecture.Attention)
            and part.component.position == "rope"
        ),
        default=0,
    )
