"""Every plan of a space as a table."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zeroplan.errors import MissingPartError
from zeroplan.estimation.many import VERDICTS, Figures
from zeroplan.records import fields
from zeroplan.search.blocks import Block, blocks, hopeless
from zeroplan.search.space import BATCH_KEYS, Space, space_of
from zeroplan.spec.toml import by_dotted_key

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["frames", "parquet_parts", "sweep", "write_csv", "write_parquet"]

Progress = Callable[[int, int], None]
"""Told how many structures of how many are priced."""


def sweep(
    *, global_batch_size: int | None = None, profiles: Path | None = None, **keys: object
) -> "pd.DataFrame":
    """Price every combination of values.

    Parameters
    ----------
    global_batch_size
        Sequences that all GPUs together take in per step; micro-steps follow from it. [count]
    profiles
        Folder whose hardware profiles come before the shipped ones.
    **keys
        Keys of the spec file by name, each with a value or a sequence of them.

    Returns
    -------
    pandas.DataFrame
        A row for each plan: the keys that vary, missing where its strategy does not read them, then
        its figures in SI base units. Combinations that contradict themselves or are not modelled
        are left out; `attrs["refused"]` says which.

    Raises
    ------
    SpecError
        A key or a value is not known, or all combinations are refused.

    Examples
    --------
    >>> table = sweep(model="8b", strategy="fsdp2", gpus=[8, 16], micro_batch_size=[1, 2, 4])
    >>> len(table)
    6

    """
    import pandas as pd  # noqa: PLC0415  # half a second that only this caller pays

    space = space_of(by_dotted_key(keys), global_batch_size=global_batch_size, profiles=profiles)
    refused: dict[str, int] = {}
    tables = list(frames(space, refused))
    if not tables:
        raise hopeless(refused)
    table = pd.concat(tables, ignore_index=True)
    table.attrs["refused"] = refused
    return table


def frames(
    space: Space, refused: dict[str, int], progress: Progress | None = None
) -> "Iterator[pd.DataFrame]":
    """Yield the plans block by block, so that no more than one is held; count what is refused."""
    families = space.families()
    for done, family in enumerate(families, 1):
        for found in blocks(space, family):
            if isinstance(found, Block):
                yield _frame(space, found)
            else:
                refused[found.why] = refused.get(found.why, 0) + found.plans
        if progress is not None:
            progress(done, len(families))


def write_csv(space: Space, path: Path, *, progress: Progress | None = None) -> None:
    """Write every plan of a space as a line, block by block."""
    head = True
    with path.open("w", encoding="utf-8", newline="") as file:
        for table in frames(space, {}, progress):
            table.to_csv(file, index=False, header=head)
            head = False


def write_parquet(space: Space, path: Path, *, progress: Progress | None = None) -> None:
    """Write every plan of a space as Parquet, a row group for each block."""
    pa, parquet = parquet_parts()
    writer = None
    try:
        for table in frames(space, {}, progress):
            rows = pa.Table.from_pandas(table, preserve_index=False)
            writer = writer or parquet.ParquetWriter(path, rows.schema)
            writer.write_table(rows.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()


def parquet_parts() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet part.

    Raises
    ------
    MissingPartError
        pyarrow is not installed.

    """
    try:
        import pyarrow as pa  # noqa: PLC0415  # nobody else needs it
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingPartError("--parquet needs pyarrow: pip install pyarrow.") from None
    return pa, parquet


def _frame(space: Space, block: Block) -> "pd.DataFrame":
    import pandas as pd  # noqa: PLC0415

    shape = block.figures.verdict.shape
    steps, batch, machine = (each.ravel() for each in np.indices(shape))
    named: dict[str, Any] = {}
    for key in space.structural:  # of one type in every block, also where it is left out
        values: Any = space.axes[key]
        dtype = pd.array(values).dtype
        named[key] = pd.array([block.structure.get(key)], dtype=dtype).repeat(steps.size)
    for key in block.machines.keys[0]:
        named[key] = np.array([each[key] for each in block.machines.keys], dtype=object)[machine]
    size, length, count = BATCH_KEYS
    named[size] = block.batches.micro_batch_size[batch]
    named[length] = block.batches.sequence_length[batch]
    named[count] = block.batches.gradient_accumulation_steps[steps, batch]
    columns = {key.rpartition(".")[2]: value for key, value in named.items()}
    found = {entry.name: getattr(block.figures, entry.name).ravel() for entry in fields(Figures)}
    found["verdict"] = np.array(VERDICTS, dtype=object)[found["verdict"]]
    return pd.DataFrame(columns | found)
