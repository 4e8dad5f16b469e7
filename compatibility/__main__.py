"""`python -m compatibility`."""

from compatibility.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
