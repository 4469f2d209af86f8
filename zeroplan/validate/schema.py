"""The JSON schema of `zeroplan validate --record`, drawn from the records of a run."""

from typing import Final

from zeroplan.estimation.schema import answer_schema
from zeroplan.schemas import Schema
from zeroplan.validate.measurement import SCHEMA_VERSION, RunRecord

__all__ = ["record_schema"]

TITLE: Final = "zeroplan record of a run"


def record_schema() -> Schema:
    """Return the schema of a record of a run."""
    return answer_schema(TITLE, SCHEMA_VERSION, RunRecord)
