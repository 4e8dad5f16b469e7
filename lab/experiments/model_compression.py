"""`compression`: bits per byte of a model whose vocabulary was pruned, without training."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import tokengraft as tg
from lab.experiments.data import up_to
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup
from lab.experiments.intervals import Interval, paired_change
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.plots import Panel, Series
from lab.experiments.prune import equal_parts
from lab.experiments.tables import NOTHING, Table, distinct, number, only, percent, select

METHODS = ("leaf-expected", "leaf-frequency", "merge", "frequency", "last-id-leaf", "last-id")
SIZES = (12_288, 24_576, 30_720, 36_864, 39_322)
"""25, 50, 62.5, 75 and 80 % of the 49,152 tokens of SmolLM2."""
LITTLE = {f"{method} by 1 MB": method for method in METHODS[:2]}
"""The same methods, by the first million characters of text."""
HELD_OUT_BYTES = 1_000_000
CHUNK = 2_000
"""Bytes of text that are scored at once."""
TEXTS = {"held_out": "held-out documents", "flores": "FLORES", "flores_english": "English FLORES"}
OVERLAP = 0.005
"""A relative difference that is no difference."""

LOGITS = {"cuda": 1 << 30, "cpu": 1 << 27}
"""Logits that are computed at once."""


@dataclass(frozen=True)
class Arm:
    """A smaller vocabulary of a model, and texts in its tokens. All ids are those of the whole vocabulary."""

    kept: np.ndarray
    """The ids of the tokens that are left."""
    texts: Mapping[str, Sequence[np.ndarray]]
    """By name: the tokens of each part of a text. A part is scored by itself, after the token that begins texts."""


def score(folder: Path, arms: Mapping[str, Arm]) -> dict[str, dict[str, list[float]]]:
    """The bits of every part of every text, by arm and text.

    A transplanted model has the rows of the kept tokens and no others. So its logits are those of the whole model
    without the columns of removed tokens.
    """
    found = {}
    for name, arm in arms.items():
        found[name] = {text: _bits(_model(folder), arm.kept, parts) for text, parts in arm.texts.items()}
    return found


@lru_cache(maxsize=1)
def _model(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()


def _bits(model: Any, kept: np.ndarray, parts: Sequence[np.ndarray]) -> list[float]:
    import torch

    columns = torch.from_numpy(kept.astype(np.int64)).to(model.device)
    place = torch.full((int(kept.max()) + 1,), -1, device=model.device)
    place[columns] = torch.arange(len(kept), device=model.device)
    start, bits = model.config.bos_token_id, [0.0] * len(parts)
    for chosen in _batches(parts, LOGITS[model.device.type] // model.config.vocab_size):
        sizes = [len(parts[i]) for i in chosen]
        ids = torch.full((len(chosen), 1 + max(sizes)), start, device=model.device)
        for row, i in enumerate(chosen):
            ids[row, 1 : 1 + sizes[row]] = torch.from_numpy(parts[i].astype(np.int64)).to(model.device)
        with torch.inference_mode():
            logits = model(ids[:, :-1]).logits  # padding is at the end, where causal attention does not see it
            for row, i in enumerate(chosen):
                scores = torch.log_softmax(logits[row, : sizes[row]].index_select(1, columns).float(), dim=-1)
                targets = place[ids[row, 1 : 1 + sizes[row]]]
                bits[i] = round(-float(scores.gather(1, targets[:, None]).double().sum()) / math.log(2), 4)
    return bits


def _batches(parts: Sequence[np.ndarray], tokens: int) -> Iterator[list[int]]:
    """Parts of similar length together, with at most ``tokens`` tokens, padding included; at least one part."""
    batch: list[int] = []
    for i in sorted((i for i in range(len(parts)) if len(parts[i])), key=lambda i: len(parts[i])):
        if batch and (len(batch) + 1) * len(parts[i]) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each size and text; the part of the cell is the method, or `base`."""
    made = arms(setup, cell)
    return rows_of(setup, cell, made, score(setup.model_folder, made))


def arms(setup: Setup, cell: Cell) -> dict[str, Arm]:
    """The pruned vocabularies of a method, by the number of removed tokens."""
    base, texts = tg.load(setup.model_folder), scored_texts(setup, cell.language)
    if cell.part == "base":
        return {"0": _arm(base, texts)}
    counts = _counts(setup, cell.language, 1_000_000 if cell.part in LITTLE else setup.budget)
    method = LITTLE.get(cell.part, cell.part)
    order = tg.prune_order(base, counts, method, protection=tg.Protection(defaults=False))
    sizes = (size for size in setup.sizes if size <= len(order))
    return {str(size): _arm(order[:size].apply(base), texts) for size in sizes}


@lru_cache(maxsize=2)
def _counts(setup: Setup, language: str, budget: int) -> tg.PretokenCounts:
    """The text that decides what is removed: so many characters of a language, and of English in equal parts."""
    base, languages = tg.load(setup.model_folder), dict.fromkeys([language, ENGLISH])
    return equal_parts(*(tg.count(base, up_to(setup.documents(name).train, budget)) for name in languages))


def _arm(pruned: tg.Tokenizer, texts: Mapping[str, Sequence[Sequence[str]]]) -> Arm:
    kind = np.uint16 if pruned.n_rows <= 1 << 16 else np.uint32
    parts = {name: [part for unit in units for part in unit] for name, units in texts.items()}
    encoded = {name: [np.array(ids, kind) for ids in pruned.encode_batch(found)] for name, found in parts.items()}
    return Arm(np.array(sorted(token.id for token in pruned.tokens), kind), encoded)


def rows_of(
    setup: Setup, cell: Cell, made: Mapping[str, Arm], scores: Mapping[str, Mapping[str, Sequence[float]]]
) -> Iterator[Row]:
    """The rows of a cell, with the bits of every unit: of a sentence, or of a document."""
    total = len(tg.load(setup.model_folder).tokens)
    for size, arm in made.items():
        for name, units in scored_texts(setup, cell.language).items():
            left = iter(scores[size][name])
            bits = [sum(next(left) for _ in unit) for unit in units]
            text_bytes = sum(len(part.encode()) for unit in units for part in unit)
            yield {
                "method": cell.part,
                "size": int(size),
                "removed": int(size) / total,
                "kept": len(arm.kept),
                "text": name,
                "bytes": text_bytes,
                "bits_per_byte": sum(bits) / text_bytes,
                "units": " ".join(f"{x:.2f}" for x in bits),
            }


@lru_cache(maxsize=2)
def scored_texts(setup: Setup, language: str) -> dict[str, list[list[str]]]:
    """The parts of every unit: held-out documents, which the pruning has not seen, and sentences of FLORES."""
    held_out, size = [], 0
    for document in setup.documents(language).held_out:
        if size < HELD_OUT_BYTES:
            held_out.append([*chunks(document)])
            size += len(document.encode())
    sentences = {"flores": language} | ({"flores_english": ENGLISH} if language != ENGLISH else {})
    flores = {name: [[line] for line in setup.data.sentences(code)] for name, code in sentences.items()}
    return {"held_out": held_out, **flores}


def chunks(text: str) -> Iterator[str]:
    """Parts of about `CHUNK` bytes that end before white space. They do not depend on a tokenizer.

    >>> [len(part) for part in chunks("word " * 1000)]
    [1999, 1995, 1006]
    """
    while len(text.encode()) > CHUNK:
        at = CHUNK
        while len(text[:at].encode()) > CHUNK:
            at -= 1 + (len(text[:at].encode()) - CHUNK) // 4
        space = max(text.rfind(" ", 1, at), text.rfind("\n", 1, at))
        cut = space if space > 0 else at
        yield text[:cut]
        text = text[cut:]
    if text.strip():
        yield text


def tables(rows: Rows) -> list[Table]:
    """Every method against the unpruned model, and against leaf orders; then the same with little text."""
    found = [_table(rows, _alike(rows, METHODS), "base", "Bits per byte, change against the unpruned model")]
    for reference in _alike(rows, METHODS[:2]):
        others = _alike(rows, [method for method in METHODS if method not in reference])
        found.append(_table(rows, others, reference[0], f"Bits per byte, change against {_names(reference)}"))
    ours, theirs = LITTLE
    found.append(_table(rows, [[ours], [theirs]], "base", "Pruned by 1 MB, change against the unpruned model"))
    found.append(_table(rows, [[ours]], theirs, f"Pruned by 1 MB, change against {_names([theirs])}"))
    return found


def _table(rows: Rows, columns: Sequence[Sequence[str]], reference: str, title: str) -> Table:
    lines = []
    for language, text in _texts(rows):
        mine = select(rows, language=language, text=text)
        whole = only(mine, method="base")
        for size in _sizes(mine):
            changes = [change(mine, methods[0], reference, size) for methods in columns]
            if any(changes) and whole:
                share = select(mine, size=size)[0]["removed"]
                cells = (NOTHING if found is None else str(found) for found in changes)
                scored = f"{TEXTS[text]} ({number(whole['bits_per_byte'])})"
                lines.append((_pruned_by(language), scored, percent(share), *cells))
    heads = ("pruned by", "scored on (unpruned)", "removed", *map(_names, columns))
    return Table(title, heads, lines, "With paired 95 % intervals.")


def _names(methods: Sequence[str]) -> str:
    return " and ".join(f"`{LITTLE.get(method, method)}`" for method in methods)


def change(rows: Rows, method: str, reference: str, size: int) -> Interval | None:
    """How many more bits the units of a text need with a method than with another; None if one was not run."""
    ours = only(rows, method=method, size=size)
    theirs = only(rows, method=reference, size=size if reference != "base" else 0)
    return paired_change(_units(ours), _units(theirs)) if ours and theirs else None


def _units(row: Row) -> list[float]:
    return [float(bits) for bits in str(row["units"]).split()]


def _texts(rows: Rows) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["language"], row["text"]) for row in rows))


def _sizes(rows: Rows) -> list[int]:
    return sorted(size for size in distinct(rows, "size") if size)


def _pruned_by(language: str) -> str:
    return " and ".join(language_of(name).name for name in dict.fromkeys([language, ENGLISH]))


def panels(rows: Rows) -> list[Panel]:
    """Bits per byte by share of removed tokens."""
    found = []
    for language, text in _texts(rows):
        mine = select(rows, language=language, text=text)
        series = []
        for method in (method for method in METHODS if select(mine, method=method)):
            chosen = [row for row in mine if row["method"] in ("base", method)]
            xs, ys = [100 * row["removed"] for row in chosen], [row["bits_per_byte"] for row in chosen]
            series.append(Series(method, xs, ys))
        found.append(Panel(_name(language, text), "percent of the tokens removed", "bits per byte", series))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Section "Model Compression via Pruning", and one about the default order."""
    by_text = {_name(*place): select(rows, language=place[0], text=place[1]) for place in _texts(rows)}
    found = [*_loss(by_text), *_overlap(by_text)]
    for methods in _alike(rows, METHODS[3:]):
        found += _better(by_text, methods)
    return [*found, *_little(by_text)]


def _name(language: str, text: str) -> str:
    if text == "flores_english":
        return f"English FLORES (pruned with {language_of(language).name})"
    return f"{language_of(language).name} {TEXTS[text]}"


ByText = Mapping[str, Rows]
"""The rows of each text, by the name of the text."""


def _loss(by_text: ByText) -> Iterator[Claim]:
    sizes = {row["size"] for rows in by_text.values() for row in rows if 0.6 < row["removed"] < 0.65}
    found = {text: change(rows, "leaf-frequency", "base", size) for text, rows in by_text.items() for size in sizes}
    if found and all(found.values()):
        holds = all(one.high < 0.01 for one in found.values() if one)
        measured = ", ".join(f"{text} {one}" for text, one in found.items())
        yield Claim("62.5 % of the tokens can be removed for less than 1 % more bits", holds, measured)


def _overlap(by_text: ByText) -> Iterator[Claim]:
    found = [one for rows in by_text.values() for one in _changes(rows, "merge", "leaf-frequency").values()]
    if found:
        widest = max(found, key=lambda one: max(-one.low, one.high))
        holds = max(-widest.low, widest.high) < OVERLAP
        yield Claim("`merge` and `leaf-frequency` overlap (within 0.5 %)", holds, f"at most {widest}")


def _better(by_text: ByText, methods: Sequence[str]) -> Iterator[Claim]:
    """Whether the whole interval is below zero, at every size and on every text."""
    found = {text: _changes(rows, "leaf-frequency", methods[0]) for text, rows in by_text.items()}
    if all(found.values()):
        behind = _listed(found, lambda one: not one.below_zero)
        least = max((one for changes in found.values() for one in changes.values()), key=lambda one: one.high)
        yield Claim(
            f"`leaf-frequency` is better than {_names(methods)}",
            not behind,
            f"not on {behind}" if behind else f"everywhere, {least} at least",
        )


def _little(by_text: ByText) -> Iterator[Claim]:
    """Whether the default order is nowhere worse than the paper's, by little text."""
    ours, theirs = LITTLE
    found = {text: _changes(rows, ours, theirs) for text, rows in by_text.items()}
    if all(found.values()):
        worse = _listed(found, lambda one: one.above_zero)
        text = f"By 1 MB, {_names([ours])} is nowhere worse than {_names([theirs])}"
        yield Claim(text, not worse, f"worse on {worse or 'no text'}")


def _listed(found: Mapping[str, Mapping[str, Interval]], wanted: Callable[[Interval], bool]) -> str:
    """By text, where the changes are as wanted, and the largest of those."""
    parts = []
    for text, changes in found.items():
        if chosen := {share: one for share, one in changes.items() if wanted(one)}:
            shares = ", ".join(share.removesuffix(" %") for share in chosen)
            parts.append(f"{text} at {shares} % (up to {max(chosen.values(), key=lambda one: one.value)})")
    return "; ".join(parts)


def _changes(rows: Rows, method: str, other: str) -> dict[str, Interval]:
    """By the share of removed tokens."""
    pairs = [(size, change(rows, method, other, size)) for size in _sizes(rows)]
    return {percent(select(rows, size=size)[0]["removed"]): one for size, one in pairs if one}


def _alike(rows: Rows, methods: Sequence[str]) -> list[list[str]]:
    """The methods, those together that need the same bits everywhere."""
    by_units: dict[tuple[str, ...], list[str]] = {}
    for method in methods:
        units = tuple(row["units"] for row in select(rows, method=method))
        by_units.setdefault(units, []).append(method)
    return [found for units, found in by_units.items() if units]


EXPERIMENT = Experiment(
    name="compression",
    title="What pruning costs the model",
    source="Figures 5 and 11 (smaller: bits per byte of SmolLM2-135M-Instruct, no downstream tasks, no Estonian)",
    about=(
        "SmolLM2-135M-Instruct pruned by text of English, and by German and English in equal parts, without training: "
        f"bits of all 1,012 sentences of FLORES, and of held-out documents that the pruning has not seen "
        f"({HELD_OUT_BYTES // 1_000_000} MB). Bits per byte do not depend on the number of tokens. Intervals draw "
        "sentences, and whole documents. The paper prunes Llama-3.1-8B and measures downstream tasks. Most of that "
        "model's 128,000 tokens are for other languages; most of SmolLM2's 49,152 are English, and it knows little "
        "German. Default protection is off."
    ),
    models=("smollm2",),
    languages=(ENGLISH, "de"),
    parts=("base", *METHODS, *LITTLE),
    sizes=SIZES,
    needs=("torch", "transformers"),
    needs_model=True,
    caveat=(
        "Weights in bfloat16; the weights of this copy of SmolLM2 were 4-bit before. One model. `results.csv` has the "
        "bits of every sentence and document (`units`). `run.json` has a note on where they were scored."
    ),
)
