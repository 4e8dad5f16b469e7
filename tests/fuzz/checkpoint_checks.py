"""What must hold for checkpoints: a complete result that other libraries read, or an error and nothing written."""

import json
from pathlib import Path
from random import Random

from safetensors import SafetensorError, deserialize

import tokengraft as tg
from fuzz.seeds import MODEL, NEW, OLD
from fuzz.tokenizer_checks import Difference, cached_tokenizer
from tokengraft.errors import TokengraftError

WRITTEN_SHARE = 0.1
"""The share of cases in which a result is written; the others are dry runs, in which all files are parsed."""
EMBEDDING = "model.embed_tokens.weight"


def check_checkpoint(folder: Path, random: Random) -> None:
    """A transplant; its output is compared with the source by the safetensors library."""
    new = (
        tg.load(folder / NEW)
        if random.random() < 0.05
        else cached_tokenizer((folder / NEW / "tokenizer.json").read_bytes())
    )
    out = folder / "out"
    before = _names(folder)
    if random.random() > WRITTEN_SHARE:
        tg.transplant(folder / OLD, new, None)
        return
    init = random.choice(("fvt-rare", "fvt", "length-weighted", "mean", "random"))
    try:
        tg.transplant(
            folder / OLD, new, out, init=init, options=tg.TransplantOptions(pad_multiple=random.choice(("keep", 8)))
        )
    except TokengraftError:
        if _names(folder) != before:
            raise Difference(f"an error left {_names(folder) - before}") from None
        raise
    _require_rows(folder / OLD, out)


def _names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def _require_rows(old: Path, new: Path) -> None:
    """The safetensors library opens all files, and kept rows are equal."""
    try:
        before = _tensors(old)
    except SafetensorError:  # an unknown type, for instance, of a tensor that is only copied
        return
    after = _tensors(new)
    plan = tg.plan(tg.load(old), tg.load(new))
    if EMBEDDING not in before or EMBEDDING not in after:
        return
    (kind, shape, one), (other_kind, other_shape, other) = before[EMBEDDING], after[EMBEDDING]
    if kind != other_kind or shape[1:] != other_shape[1:]:
        raise Difference(f"the embedding was {kind} {shape} and is {other_kind} {other_shape}")
    width = len(one) // max(shape[0], 1)
    for source, target in plan.moved.items():
        if one[source * width : (source + 1) * width] != other[target * width : (target + 1) * width]:
            raise Difference(f"row {source} is not row {target} of the result")


def _tensors(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Type, shape and bytes of all tensors, by the library."""
    return {
        name: (info["dtype"], info["shape"], bytes(info["data"]))
        for path in sorted(folder.glob("*.safetensors"))
        for name, info in deserialize(path.read_bytes())
    }


def check_gguf(folder: Path, random: Random) -> None:
    """A transplant of a GGUF file, which the gguf package then reads."""
    import gguf

    new = cached_tokenizer((folder / NEW / "tokenizer.json").read_bytes())
    base = cached_tokenizer((folder / MODEL).read_bytes()) if random.random() < 0.5 else None
    if random.random() > WRITTEN_SHARE:
        tg.transplant(folder / "model.gguf", new, None, base=base)
        return
    before = _names(folder)
    try:
        tg.transplant(folder / "model.gguf", new, folder / "out.gguf", base=base)
    except TokengraftError:
        if _names(folder) != before:
            raise Difference(f"an error left {_names(folder) - before}") from None
        raise
    reader = gguf.GGUFReader(folder / "out.gguf")
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    if any(tokens[token_id] != string for string, token_id in new.ids.items()):
        raise Difference("the file has other tokens than the new tokenizer")


def check_cache(folder: Path, _: Random) -> None:
    """What `adapt` keeps of counting, to go on with it."""
    from tokengraft.pipeline.adapt import _load

    cached = _load(folder / "counts.parquet", folder / "held_out.json")
    if cached is not None and not all(isinstance(text, str) for text in cached.held_out):
        raise Difference(f"a held out document is no text: {json.dumps(cached.held_out)[:100]}")
