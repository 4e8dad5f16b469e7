"""Writes docs/api.md: every public name, in groups, for mkdocstrings to fill in.

python docs/build_api.py
"""

from pathlib import Path

import tokengraft as tg

PAGE = Path(__file__).parent / "api.md"
GROUPS = {
    "Steps": "load save convert inspect count extend prune_order plan transplant transplant_model check check_serving "
    "evaluate "
    "compare curve report",
    "The complete pipeline": "adapt estimate Target AdaptOptions Sizes Adaptation TargetResult Estimate",
    "Tokenizers": "Tokenizer Token AddedToken MergeStructure Inspection",
    "Text and counts": "ReadOptions CountOptions HoldOut PretokenCounts Totals BatchCounter sum_partials",
    "Extending": "Limits Parity WordList PieceRules Extension LearnedMerge RefusedPair IncludedWord preserve_cost "
    "PreserveCost extend_naively",
    "Pruning": "Protection PruneOrder Removal",
    "Checkpoints": "VocabPlan Transplant",
    "Checking and measuring": "Check Finding Evaluation Score Comparison Curve Curves curves choose_size "
    "SizeChoice SizeOptions",
    "Models": "probe ProbeOptions Probe ProbeScore distill DistillOptions Distillation",
    "Errors": "TokengraftError",
}


def page() -> str:
    """The page, as it should be."""
    parts = ["# Python reference\n\nEverything is imported from the package: `import tokengraft as tg`.\n"]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        # By the module that defines it: `tokengraft.extend` is also the name of a module.
        parts += [f"::: {getattr(tg, name).__module__}.{name}\n" for name in names.split()]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
