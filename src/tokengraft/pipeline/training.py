"""`training_file`: `training.json`, which tells a training run about the new rows, with settings to start from.

`next_step`: what to do with the result of an adaptation.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tokengraft import _core
from tokengraft.checkpoint.model_card import CAUSAL, model_class
from tokengraft.checkpoint.model_files import TRAINING
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.measure.choose_size import MIN_SUPPORT
from tokengraft.measure.sizes import expected, text_ratio
from tokengraft.page.content import NextStep
from tokengraft.pipeline.result import Adaptation
from tokengraft.pipeline.texts import Texts
from tokengraft.training.options import KEPT_SHARE, NEW_ROWS_FACTOR, OLD_ROWS_FACTOR, STEP_BYTES, measured_rate

RARE_BELOW = MIN_SUPPORT
"""Tokens that occur less often are rare: a training run that reads the text once hardly changes their rows."""
LORA = {"r": 64, "lora_alpha": 128, "lora_dropout": 0.0, "target_modules": "all-linear"}
_LIBRARIES = ("torch", "transformers", "peft")


def training_file(result: Adaptation, transplant: Transplant, texts: Texts, training_text: int | None) -> bytes:
    """The content of `training.json`, by the counts of every text without held-out documents.

    Text to keep is expected to have the same share of the training text as of the counted text.
    """
    counts = {name: part.counts for name, part in texts.parts.items()}
    new = [row for row, source in enumerate(result.plan.sources) if isinstance(source, tuple)]
    # Of an adapter, all its rows: trained with LoRA layers, they again are a complete adapter of the base.
    rows = [*transplant.adapter_rows] or new
    seen = Counter[int]()
    for part in counts.values():
        seen.update(part.tokens(result.tokenizer))
    frequency = [seen[token_id] for token_id in new]
    ratio = text_ratio(texts.support, training_text) if texts.targets else Fraction(1)
    trained = expected(frequency, ratio)
    task = {"task_type": "CAUSAL_LM"} if is_causal(result) else {}
    settings = {
        "versions": _versions(),
        "embedding_rows": transplant.rows_after,
        "tied": transplant.tied,
        "counted": {name: part.totals.bytes for name, part in counts.items()},
        "counted_tokens": seen.total(),
        "new_ids": new,
        "pieces": [len(source) for source in result.plan.sources if isinstance(source, tuple)],
        "frequency": frequency,
        **({"training_text": training_text} if training_text else {}),
        "rare_below": RARE_BELOW,
        "rare_ids": [token_id for token_id, times in zip(new, trained, strict=True) if times < RARE_BELOW],
        "lora": task | LORA | {"trainable_token_indices": dict.fromkeys(_modules(transplant), rows)},
        "learning_rate": _rate(transplant),
        "new_rows_factor": NEW_ROWS_FACTOR,
        "old_rows_factor": OLD_ROWS_FACTOR,
        "kept_share": KEPT_SHARE,
        "step_bytes": STEP_BYTES,
    }
    return (json.dumps(settings, ensure_ascii=False, indent=2) + "\n").encode()


def is_causal(result: Adaptation) -> bool:
    """Whether the adapted model is one that predicts the next token, as the settings and the commands here train it."""
    return model_class(Path(result.request["source"])) == CAUSAL


def next_step(result: Adaptation, folder: str) -> NextStep:
    """What to do with a result in a folder: transplant, train, or measure."""
    if not result.transplant:
        command = ["tokengraft", "transplant", "MODEL", folder, "--out", "NEW_MODEL"]
        return NextStep("transplant", "Only the tokenizer is adapted: the source has no weights.", command)
    tests = [f"{name}={paths[0]}" for name, paths in _paths(result, "test") if len(paths) == 1] or ["NAME=FILES"]
    if not is_causal(result):
        why = "The model has never read the words of removed tokens as shorter ones: compare it on your task."
        if result.plan.summary.added:
            why = "New rows are only initialised: train the model, by its own objective, before you use it."
        command = ["tokengraft", "evaluate", f"base={result.request.get('source', 'MODEL')}", f"new={folder}"]
        return NextStep("measure the model, and the tokens of other text", why, [*command, "--text", *tests])
    if not result.plan.summary.added:
        models = [str(result.request.get("source", "MODEL")), folder]
        command = ["tokengraft", "evaluate", "--bits", *models, "--text", *tests]
        why = "The model has never read the words of removed tokens as shorter ones: compare bits per byte."
        return NextStep("measure the model", why, command)
    if result.transplant.adapter_rows:
        # JSON, for its quotation marks: a shell has the others around the whole.
        source, merged = json.dumps(folder), json.dumps(f"{folder}-merged")
        merge = (
            "import shutil; from peft import AutoPeftModelForCausalLM as Model; "
            "from transformers import AutoTokenizer; "
            f"Model.from_pretrained({source}).merge_and_unload().save_pretrained({merged}); "
            f"AutoTokenizer.from_pretrained({source}).save_pretrained({merged}); "
            f"shutil.copy({json.dumps(f'{folder}/{TRAINING}')}, {merged})"
        )
        why = "New rows are only initialised: load the adapter with `is_trainable=True`, or merge it first."
        return NextStep("train the adapter, or merge it and train the model", why, ["python", "-c", merge])
    command = ["tokengraft", "train", folder]
    for flag, role in (("--text", "target"), ("--keep", "keep")):
        named = ([f"{name}={paths[0]}", *paths[1:]] for name, paths in _paths(result, role))
        files = [word for words in named for word in words]
        command += [flag, *files] if files else []
    if "--text" not in command:
        command += ["--text", "FILES"]
    why = f"New rows are only initialised: `{TRAINING}` has their ids, and settings to start from."
    return NextStep("train the model", why, [*command, "--out", f"{folder}-trained"])


def _paths(result: Adaptation, role: str) -> Iterator[tuple[str, list[str]]]:
    """The name and the paths of every text of a role that was read from files."""
    for item in result.request.get("inputs", ()):
        if item["role"] == role and item["path"]:
            yield item["name"], [item["path"]] if isinstance(item["path"], str) else item["path"]


def _versions() -> dict[str, str]:
    """The versions of tokengraft, and of the libraries for training that are installed."""
    versions = {"tokengraft": _core.__version__}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _modules(transplant: Transplant) -> list[str]:
    """The names of the modules with new rows, as PEFT finds them: of a tied output, the embedding alone.

    >>> from types import SimpleNamespace
    >>> tensors = [("model.embed_tokens.weight", "input"), ("lm_head.weight", "output")]
    >>> _modules(SimpleNamespace(tied=False, tensors=tensors)), _modules(SimpleNamespace(tied=True, tensors=tensors))
    (['embed_tokens', 'lm_head'], ['embed_tokens'])
    """
    roles = ("input",) if transplant.tied else ("input", "output")
    names = [next((name for name, kind, *_ in transplant.tensors if kind == role), None) for role in roles]
    return [name.removesuffix(".weight").rpartition(".")[2] for name in names if name is not None]


def _rate(transplant: Transplant) -> float:
    """A learning rate for a model of this width."""
    _, _, dtype, _, size = next(tensor for tensor in transplant.tensors if tensor[1] == "input")
    return measured_rate(size // transplant.rows_after // ITEM_BYTES[dtype])
