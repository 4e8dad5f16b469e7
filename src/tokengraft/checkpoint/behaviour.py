"""Runs both models on sequences of kept tokens and compares their logits. Needs torch and transformers."""

import random
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokengraft.errors import CheckpointError, OptionError
from tokengraft.vocab_plan import VocabPlan

if TYPE_CHECKING:
    import torch

SEQUENCES, LENGTH, GENERATED = 8, 24, 8
TOLERANCE = 1e-3
PROMPT = "The"


class Behaviour(NamedTuple):
    """The comparison of two models."""

    sequences: int
    worst: float
    """The largest difference of a logit of a kept token, relative to the largest logit."""
    old_text: str
    new_text: str
    """The text that each model generates from the same prompt."""


def require_torch(hint: str = "install them, or leave out --verify") -> None:
    """Refuses to run models if torch or transformers is not installed."""
    try:
        import_module("torch")
        import_module("transformers")
    except ImportError as error:
        raise OptionError(f"running models needs torch and transformers: {error}", hint=hint) from error


def compare_models(old: Path, new: Path, plan: VocabPlan) -> Behaviour:
    """The comparison of the logits of kept tokens, on sequences of kept tokens, in the old and the new model.

    Only one model is in memory at a time.
    """
    require_torch()
    kept = sorted(plan.moved)
    if not kept:
        raise CheckpointError("no token is in both tokenizers: nothing to compare", hint="leave out --verify")
    generator = random.Random(0)
    sequences = [generator.choices(kept, k=LENGTH) for _ in range(SEQUENCES)]
    before, old_text = _run(old, "the source", sequences, kept)
    moved = plan.moved
    after, new_text = _run(new, "the result", [[moved[i] for i in ids] for ids in sequences], [moved[i] for i in kept])
    worst = float((before - after).abs().max() / before.abs().max().clamp(min=1e-9))
    if not worst <= TOLERANCE:
        raise CheckpointError(
            f"the logits of kept tokens differ by {worst:.2e} of the largest logit; rounding explains at most "
            f"{TOLERANCE}",
            hint="please report this, with the architecture",
        )
    return Behaviour(SEQUENCES, worst, old_text, new_text)


def _run(folder: Path, what: str, sequences: list[list[int]], wanted: list[int]) -> tuple["torch.Tensor", str]:
    """The logits of the wanted tokens at every position of the sequences, and the text generated from the prompt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    offline = {"local_files_only": True, "trust_remote_code": False}
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, **offline)
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **offline)
        with torch.no_grad():
            logits = model(torch.tensor(sequences)).logits[..., wanted]
            prompt = tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
            generated = model.generate(**prompt, max_new_tokens=GENERATED, do_sample=False)
        return logits, str(tokenizer.decode(generated[0]))
    except Exception as error:  # any error of another library means that the model does not load or run
        raise CheckpointError(
            f"transformers cannot load or run {what}: {type(error).__name__}: {error}",
            hint="check that the source loads and generates text, or leave out --verify",
        ) from error
