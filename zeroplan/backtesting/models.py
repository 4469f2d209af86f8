"""From the shape columns of a row to the model's description."""

from typing import Any, Final

from zeroplan.backtesting.table import Cells
from zeroplan.errors import SpecError
from zeroplan.spec.architecture import Architecture
from zeroplan.spec.families import family
from zeroplan.spec.models import architecture_of, load_architecture
from zeroplan.spec.presets import list_presets

__all__ = ["architecture_of_row"]

FAMILIES: Final = {
    "bigcode": "gpt_bigcode",
    "santacoder": "gpt_bigcode",
    "mpt": "mpt",
    "neox": "gpt_neox",
    "pythia": "gpt_neox",
    "gpt": "gpt2",
    "mistral": "mistral",
    "qwen3": "qwen3",
    "qwen2": "qwen2",
    "qwen": "qwen",
    "llama": "llama",
}
"""What a model's name contains: the family of its blocks; the first that fits wins."""

OWN_NAMES: Final[dict[str, dict[str, Any]]] = {
    # llm-foundry's defaults (configuration_mpt.py): biases, learned positions, no ALiBi.
    "mpt": {"no_bias": False, "attn_config": {"alibi": False}},
}
"""Keys of a family that no column states."""

SHAPE: Final = ("n_layers", "hidden", "n_heads", "ffn", "vocab")


def architecture_of_row(cells: Cells) -> Architecture:
    """Return the description of a row's model: from its columns, or from the preset it names.

    Raises
    ------
    SpecError
        A column is blank or the numbers do not go together.

    """
    name = cells.text("model_name")
    if not any(map(cells.text, SHAPE)) and name.lower() in list_presets():
        cells.filled += SHAPE
        return load_architecture(name)
    return architecture_of(_config(cells, _family(cells, name)), cells.id, name or cells.id)


def _family(cells: Cells, name: str) -> str:
    known = family(cells.text("arch"), "")
    if known is not None:
        return known
    for word, found in FAMILIES.items():
        if word in name.lower():
            return found
    cells.filled.append("arch")
    return "llama"


def _config(cells: Cells, family_name: str) -> dict[str, Any]:
    """Write a row as a `config.json`, under all the names that families use."""
    layers, hidden, heads, width, vocabulary = map(cells.whole, SHAPE)
    kv_heads = _kv_heads(cells, heads)
    config: dict[str, Any] = {
        "model_type": family_name,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "multi_query": kv_heads == 1,
        "intermediate_size": 2 * width if family_name == "qwen" else width,  # it counts both halves
        "n_inner": width,
        "expansion_ratio": width / hidden,
        "vocab_size": vocabulary,
        "max_position_embeddings": cells.whole("seq_len"),
        "max_seq_len": cells.whole("seq_len"),
        **OWN_NAMES.get(family_name, {}),
    }
    tied = _tied(cells)
    return config if tied is None else config | {"tie_word_embeddings": tied}


def _kv_heads(cells: Cells, heads: int) -> int:
    if cells.text("n_kv_heads"):
        return cells.whole("n_kv_heads")
    cells.filled.append("n_kv_heads")
    return heads


def _tied(cells: Cells) -> bool | None:
    """Return whether embedding and head are one; None leaves it to the family."""
    answer = cells.text("tied_embeddings").lower()
    if answer in ("yes", "no"):
        return answer == "yes"
    if answer:
        raise SpecError(f"tied_embeddings = {answer!r}: write yes or no")
    cells.filled.append("tied_embeddings")
    return None
