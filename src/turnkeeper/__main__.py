"""`python -m turnkeeper` is the command line."""

from __future__ import annotations

from turnkeeper.cli import main

if __name__ == "__main__":
    main()
