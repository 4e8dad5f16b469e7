"""`python -m tokengraft` is the `tokengraft` command."""

import sys

from tokengraft.cli.main import main

sys.exit(main())
