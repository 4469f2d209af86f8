"""Encoders: BERT and its relatives, and ViT."""

from typing import Final

from zeroplan.records import dataclass, replace
from zeroplan.spec.architecture import (
    Architecture,
    Block,
    Embedding,
    Head,
    Projection,
    Stack,
    Sublayer,
    Weights,
)
from zeroplan.spec.families.common import MAX_LAYERS
from zeroplan.spec.families.shape import layer_norm
from zeroplan.spec.families.towers import both_ways, dense, plain_mlp, vit_tower
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

PER_TOKEN: Final = ("ForTokenClassification", "ForQuestionAnswering")
PER_SEQUENCE: Final = "ForSequenceClassification"
MASKED: Final = ("ForMaskedLM", "ForPreTraining", "LMHeadModel", "ForCausalLM")
CLASSES: Final = 2
"""Default of `num_labels` (transformers 5.24, PreTrainedConfig). [count]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What a relative of BERT calls its sizes."""

    hidden: str = "hidden_size"
    layers: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    width: str = "intermediate_size"
    activation: str = "hidden_act"
    dropout: str = "hidden_dropout_prob"


DISTIL: Final = _Names(
    hidden="dim",
    layers="n_layers",
    heads="n_heads",
    width="hidden_dim",
    activation="activation",
    dropout="dropout",
)


def bert(keys: Keys, name: str) -> Architecture:
    """BERT (transformers 5.24, BertConfig); the class decides on pooler and head."""
    stack = _post_norm(keys, _Names(), layers=12, vocabulary=30_522, types=2)
    if _is_base(keys) or keys.class_name.endswith(("ForPreTraining", PER_SEQUENCE)):
        stack = _pooled(stack)
    head = _head(keys, stack)
    if head is not None and keys.class_name.endswith("ForPreTraining"):
        head = replace(head, extras=(*head.extras, *dense("seq_relationship", 2, stack.hidden)))
    return _architecture(keys, name, (stack,), head)


def roberta(keys: Keys, name: str) -> Architecture:
    """RoBERTa and XLM-RoBERTa (transformers 5.24, RobertaConfig); only the base class pools."""
    vocabulary = 30_522 if keys.model_type == "xlm-roberta" else 50_265
    stack = _post_norm(keys, _Names(), layers=12, vocabulary=vocabulary, types=2)
    if _is_base(keys):
        stack = _pooled(stack)
    return _architecture(keys, name, (stack,), _head(keys, stack, classifier="tanh"))


def distilbert(keys: Keys, name: str) -> Architecture:
    """DistilBERT (transformers 5.24, DistilBertConfig): neither token types nor a pooler."""
    stack = _post_norm(keys, DISTIL, layers=6, vocabulary=30_522, types=0)
    return _architecture(
        keys, name, (stack,), _head(keys, stack, classifier="relu", shared_bias=False)
    )


def vit(keys: Keys, name: str) -> Architecture:
    """ViT (transformers 5.24, ViTForImageClassification; the base class pools instead)."""
    stack = vit_tower(keys)
    if keys.class_name.endswith("Model"):
        width = keys.integer("pooler_output_size", default=stack.hidden)
        stack = replace(stack, extras=(*stack.extras, *dense("pooler", width, stack.hidden)))
        return _architecture(keys, name, (stack,), None)
    head = Head(hidden=stack.hidden, rows=_labels(keys), tied=False, bias=True, pooled=True)
    return _architecture(keys, name, (stack,), head)


def _post_norm(keys: Keys, names: _Names, *, layers: int, vocabulary: int, types: int) -> Stack:
    """Return BERT's encoder: three tables, a norm, and blocks that normalise each sum."""
    hidden = keys.integer(names.hidden, "hidden_size", default=768)
    heads = keys.integer(names.heads, "num_attention_heads", default=12)
    width = keys.integer(names.width, default=3072)
    dropout = keys.number(names.dropout, default=0.1) > 0
    norm = layer_norm(hidden)
    mlp = plain_mlp(hidden, width, keys.text(names.activation, default="gelu"))
    block = Block(
        sublayers=(
            Sublayer(
                name="attention",
                component=replace(both_ways(keys, hidden, heads), dropout=dropout),
                norm=None,
                residual_norm=norm,
            ),
            Sublayer(
                name="mlp", component=replace(mlp, dropout=dropout), norm=None, residual_norm=norm
            ),
        )
    )
    layers = keys.integer(names.layers, "num_hidden_layers", default=layers, maximum=MAX_LAYERS)
    return Stack(
        name="encoder",
        kind="encoder",
        hidden=hidden,
        embeddings=_tables(keys, hidden, vocabulary=vocabulary, types=types),
        embedding_norm=norm,
        dropout=dropout,
        blocks=(block,) * layers,
        final_norm=None,
    )


def _tables(keys: Keys, width: int, *, vocabulary: int, types: int) -> tuple[Embedding, ...]:
    """Return the tables of tokens, positions and, where there are any, types."""
    words = keys.integer("vocab_size", default=vocabulary)
    positions = keys.integer("max_position_embeddings", default=512)
    tables = (
        Embedding(name="embedding", rows=words, width=width),
        Embedding(name="positions", rows=positions, width=width, kind="position"),
    )
    if not types:
        return tables
    rows = keys.integer("type_vocab_size", default=types)
    return (*tables, Embedding(name="types", rows=rows, width=width, kind="type"))


def _pooled(stack: Stack) -> Stack:
    return replace(stack, extras=(*stack.extras, *dense("pooler", stack.hidden, stack.hidden)))


def _is_base(keys: Keys) -> bool:
    return keys.class_name.endswith("Model") and not keys.class_name.endswith("LMHeadModel")


def _head(
    keys: Keys, stack: Stack, *, classifier: str | None = None, shared_bias: bool = True
) -> Head | None:
    """Return the head of the file's class; without one it is the masked language model.

    `classifier` is the activation of the extra layer that some families classify with.
    """
    if _is_base(keys):
        return None
    if keys.class_name.endswith(PER_TOKEN):
        return Head(hidden=stack.hidden, rows=_labels(keys), tied=False, bias=True)
    if keys.class_name.endswith(PER_SEQUENCE):
        between = None if classifier is None else _between(stack.hidden, classifier)
        return Head(
            hidden=stack.hidden,
            rows=_labels(keys),
            tied=False,
            bias=True,
            transform=between,
            pooled=True,
        )
    rows = stack.embeddings[0].rows
    tied = keys.flag("tie_word_embeddings", default=True)
    # the head registers its bias twice, and ties the two only when it ties the table
    twice = shared_bias and not tied
    return Head(
        hidden=stack.hidden,
        rows=rows,
        tied=tied,
        bias=True,
        transform=replace(_between(stack.hidden, "gelu"), post_norm=layer_norm(stack.hidden)),
        extras=(Weights(name="bias", shape=(rows,), role="head"),) if twice else (),
    )


def _between(hidden: int, activation: str) -> Projection:
    return Projection(name="transform", widths=(hidden, hidden), activation=activation, role="head")


def _labels(keys: Keys) -> int:
    """Return the number of classes, which files list by name or state [count]."""
    if keys.has("num_labels"):
        labels: int = keys.integer("num_labels")
        return labels
    return len(keys.nested("id2label").mapping) or CLASSES


def _architecture(
    keys: Keys, name: str, stacks: tuple[Stack, ...], head: Head | None
) -> Architecture:
    places = [table.rows for table in stacks[-1].embeddings if table.kind == "position"]
    return Architecture(
        name=name,
        model_type=keys.model_type,
        class_name=keys.class_name,
        stacks=stacks,
        head=head,
        max_positions=max(places, default=None),
        source=keys.place,
        assumptions=_guess(keys),
    )


def _guess(keys: Keys) -> tuple[str, ...]:
    known = ("Model", *PER_TOKEN, PER_SEQUENCE, "ForImageClassification", *MASKED)
    if not keys.class_name or keys.class_name.endswith(known):
        return ()
    return (f"class {keys.class_name!r} is not known: counted as a masked language model",)


RULES: Final = {
    "bert": bert,
    "roberta": roberta,
    "xlm-roberta": roberta,
    "distilbert": distilbert,
    "vit": vit,
}
