"""The experiments of the paper, one command each; see README.md."""
