"""`python -m zeroplan` is `zeroplan`."""

import sys

from zeroplan.errors import INTERRUPTED

__all__ = ["main"]


def main() -> None:
    """Run the command line; an interrupt ends it as quietly while that is still imported."""
    try:
        from zeroplan.cli import main as run  # noqa: PLC0415  # it takes a while

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
