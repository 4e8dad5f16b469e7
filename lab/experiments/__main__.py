"""`python -m lab.experiments`."""

from lab.experiments.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
