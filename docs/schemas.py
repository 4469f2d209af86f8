"""Write the JSON schemas of specs, results and records anew: `python docs/schemas.py`.

Those of hardware profiles lie beside the profiles: `python -m zeroplan.hardware.schema
hardware_profiles/schema`.
"""

from pathlib import Path

from zeroplan.estimation.schema import result_schema
from zeroplan.schemas import text
from zeroplan.spec.schema import spec_schema
from zeroplan.validate.schema import record_schema

FOLDER = Path(__file__).parent / "schemas"


def files() -> dict[str, str]:
    """Return the text of each schema by the name of its file."""
    schemas = {"spec": spec_schema(), "result": result_schema(), "record": record_schema()}
    return {f"{name}.json": text(schema) for name, schema in schemas.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
