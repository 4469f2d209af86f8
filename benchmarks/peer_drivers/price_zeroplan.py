"""zeroplan's own `estimate`, one plan after the other; the yardstick of speed."""

from driver import Answer, Row, serve

from zeroplan import estimate


def price(row: Row) -> Answer:
    (found,) = estimate(**row["keys"]).estimates
    return {
        "step_seconds": found.time.step_seconds,
        "peak_bytes": found.memory.peak_allocated_bytes,
    }


if __name__ == "__main__":
    serve("zeroplan", price)
