"""`python -m lab.compatibility`."""

from lab.compatibility.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
