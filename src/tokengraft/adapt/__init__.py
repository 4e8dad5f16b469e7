"""The complete pipeline in one call: `adapt`. `estimate` is its dry run."""
