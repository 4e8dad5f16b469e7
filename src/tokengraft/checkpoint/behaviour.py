"""Runs the old and the new model on what the plan does not touch, and compares. Needs torch and transformers."""

import random
from pathlib import Path
from typing import Any, NamedTuple

from tokengraft.errors import CheckpointError, OptionError
from tokengraft.plan import VocabPlan

SEQUENCES, LENGTH, GENERATED = 8, 24, 8
TOLERANCE = 1e-3
PROMPT = "The"


class Behaviour(NamedTuple):
    """How two models compare."""

    sequences: int
    worst: float
    """The largest difference of a logit of a kept token, relative to the largest logit."""
    old_text: str
    new_text: str
    """What each goes on with after the same word."""


def compare_models(old: Path, new: Path, plan: VocabPlan) -> Behaviour:
    """The logits of kept tokens, on sequences of kept tokens, in the old and the new model.

    Raises:
        OptionError: torch or transformers is not installed.
        CheckpointError: A model does not load, or the logits differ beyond what rounding explains.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise OptionError(
            f"running the models needs torch and transformers: {error}", hint="install them, or leave out --verify"
        ) from error
    kept = sorted(plan.moved)
    generator = random.Random(0)
    ids = torch.tensor([generator.choices(kept, k=LENGTH) for _ in range(SEQUENCES)])
    new_ids = torch.tensor([[plan.moved[i] for i in row] for row in ids.tolist()])
    logits, texts = [], []
    for folder, sequences, wanted in ((old, ids, kept), (new, new_ids, [plan.moved[i] for i in kept])):
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, dtype=torch.float32
            )
            tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # whatever another library's loader raises is its answer
            raise CheckpointError(
                f"transformers cannot load `{folder.name}`: {error}", hint="check that the source loads"
            ) from error
        with torch.no_grad():
            logits.append(model(sequences).logits[..., wanted])
            prompt = tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
            made = model.generate(**prompt, max_new_tokens=GENERATED, do_sample=False)
            texts.append(str(tokenizer.decode(made[0])))
    worst = float((logits[0] - logits[1]).abs().max() / logits[0].abs().max().clamp(min=1e-9))
    if not worst <= TOLERANCE:
        raise CheckpointError(
            f"the logits of kept tokens differ by {worst:.2e} of the largest, {TOLERANCE} is rounding",
            hint="please report this, with the architecture",
        )
    return Behaviour(SEQUENCES, worst, *texts)
