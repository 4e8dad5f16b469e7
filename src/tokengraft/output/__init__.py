"""Writing results: complete output or none (`atomic`), result files, JSON that keeps its layout."""
