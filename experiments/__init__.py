"""The experiments of the paper, one command each: `python -m experiments NAME --data DIR --out DIR`. See README.md."""
