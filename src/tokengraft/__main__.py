"""`python -m tokengraft` is the `tokengraft` command."""

import sys

from tokengraft.cli import main

sys.exit(main())
