"""Writes docs/api.md: every public name, in groups, for mkdocstrings to fill in.

python docs/build_api.py
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import tokengraft as tg

PAGE = Path(__file__).parent / "api.md"
GROUPS = {
    "Steps": "load save convert inspect count extend include add_special prune prune_order plan transplant "
    "transplant_model check check_serving evaluate compare report draft",
    "The complete pipeline": "adapt pipeline.estimate Target AdaptOptions pipeline.Sizes Adaptation "
    "pipeline.TargetResult pipeline.Estimate",
    "Tokenizers": "Tokenizer tokenizer.Token tokenizer.AddedToken tokenizer.MergeStructure tokenizer.Inspection",
    "Text and counts": "ReadOptions CountOptions counts.HoldOut PretokenCounts distributed.BatchCounter "
    "distributed.sum_partials",
    "Extending": "Limits learn.Parity learn.WordList tokenizer.PieceRules Extension learn.LearnedMerge "
    "learn.RefusedPair learn.IncludedWord learn.include_words learn.SpecialToken learn.preserve_cost "
    "learn.PreserveCost learn.extend_naively",
    "Pruning": "Protection PruneOrder pruning.Removal",
    "Checkpoints": "VocabPlan Transplant TransplantOptions pipeline.DraftVocabulary",
    "Checking and measuring": "Check verify.Finding Evaluation measure.Score measure.Comparison measure.curve "
    "measure.Curve measure.choose_size measure.SizeChoice measure.SizeOptions",
    "Training": "train training.TrainOptions training.Training training.TrainingSettings blend training.mix "
    "training.row_rates training.RowRates training.HeldOutBits",
    "Errors": "TokengraftError",
}
"""Public names: those of the package, and those of its subpackages."""
HEAD = """# Python reference

`import tokengraft as tg` has the steps and what they return. The rest is in the subpackages of the steps: `tg.learn`,
`tg.measure`, `tg.training`, `tg.pipeline`, `tg.counts`, `tg.tokenizer` and `tg.distributed`.
"""


def page() -> str:
    """The page, as it should be."""
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        # By the module that defines it, as mkdocstrings finds it.
        parts += [f"::: {named(name).__module__}.{named(name).__name__}\n" for name in names.split()]
    return "\n".join(parts)


def named(name: str) -> Any:
    """The value of a public name."""
    module, _, last = name.rpartition(".")
    return getattr(import_module(f"tokengraft.{module}") if module else tg, last)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
