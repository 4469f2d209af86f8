"""The JSON schema of `zeroplan estimate --json`, drawn from the records of the answer."""

from typing import Final

from zeroplan.estimation.record import SCHEMA_VERSION, Estimate
from zeroplan.schemas import Drawing, Schema, document
from zeroplan.spec.run import Run
from zeroplan.spec.schema import special

__all__ = ["answer_schema", "result_schema"]

TITLE: Final = "zeroplan result"


def result_schema() -> Schema:
    """Return the schema of an answer: every field is there, null where a figure is not known."""
    return answer_schema(TITLE, SCHEMA_VERSION, Estimate)


def answer_schema(title: str, version: int, record: type) -> Schema:
    """Return the schema of what zeroplan writes about a run, whose keys spell None "auto"."""
    run = Drawing(special=special, whole=True, told=True).record(Run)
    answer = Drawing(
        special=lambda _, hint, __: run if hint is Run else None, whole=True, told=True
    )
    shape = answer.record(record)
    shape["properties"] = {"zeroplan_version": {"type": "string"}, **shape["properties"]}
    shape["required"] = ["schema_version", "zeroplan_version", *shape["required"]]
    return document(title, version, shape)
