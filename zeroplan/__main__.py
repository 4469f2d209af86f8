"""`python -m zeroplan` is `zeroplan`."""

from zeroplan.cli import main

if __name__ == "__main__":
    main()
