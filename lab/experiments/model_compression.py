"""`compression`: bits per byte of a model whose vocabulary was pruned, without training."""

import copy
import math
from collections.abc import Iterator, Sequence

import tokengraft as tg
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup
from lab.experiments.languages import ENGLISH
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import Table, distinct, number, only, percent, select

METHODS = ("leaf-frequency", "merge", "frequency", "last-id-leaf", "last-id")
SIZES = (12_288, 24_576, 30_720, 39_322)
"""25, 50, 62.5 and 80 % of the 49,152 tokens of SmolLM2."""
HELD_OUT_BYTES = 60_000
FLORES_LINES = 200
CHUNK = 2_000
"""Bytes of text that are scored at once."""
TEXTS = ("held_out", "flores")


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each size; the part of the cell is the method, or `base`."""
    model = _load_model(setup)
    base = tg.load(setup.model_folder)
    texts = scored_texts(setup)
    if cell.part == "base":
        yield {"method": "base", "size": 0, "removed": 0.0, "tokens": len(base.tokens), **_scores(model, base, texts)}
        return
    counts = tg.count(base, iter(setup.documents(ENGLISH).train))
    order = tg.prune_order(base, counts, cell.part, protection=tg.Protection(defaults=False))
    for size in (size for size in setup.sizes if size <= len(order)):
        pruned, smaller = order[:size].apply(base), copy.deepcopy(model)
        tg.transplant_model(smaller, tg.plan(base, pruned))
        removed = size / len(base.tokens)
        yield {"method": cell.part, "size": size, "removed": removed, **_scores(smaller, pruned, texts)}


def _load_model(setup: Setup):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(setup.model_folder, dtype=torch.bfloat16).eval()


def scored_texts(setup: Setup) -> dict[str, list[str]]:
    """Held-out English, which the pruning counts have not seen, and English FLORES; in chunks."""
    held_out, size = [], 0
    for document in setup.documents(ENGLISH).held_out:
        if size >= HELD_OUT_BYTES:
            break
        held_out.append(document)
        size += len(document.encode())
    sentences = setup.data.sentences(ENGLISH)[:FLORES_LINES]
    parts = (chunk for text in held_out for chunk in chunks(text))
    return {"held_out": list(_up_to(parts, HELD_OUT_BYTES)), "flores": [*sentences]}


def _up_to(texts: Iterator[str], size: int) -> Iterator[str]:
    for text in texts:
        if size <= 0:
            return
        size -= len(text.encode())
        yield text


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


def _scores(model, tokenizer: tg.Tokenizer, texts: dict[str, list[str]]) -> Row:
    return {name: bits_per_byte(model, tokenizer, parts) for name, parts in texts.items()}


def bits_per_byte(model, tokenizer: tg.Tokenizer, texts: Sequence[str]) -> float:
    """The bits that a model needs for texts, each after the token that begins texts, by byte."""
    import torch

    start, bits = model.config.bos_token_id, 0.0
    for text in texts:
        ids = torch.tensor([[start, *tokenizer.encode(text)]])
        with torch.no_grad():
            scores = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
        bits -= float(scores.gather(1, ids[0, 1:, None]).sum()) / math.log(2)
    return bits / sum(len(text.encode()) for text in texts)


def tables(rows: Rows) -> list[Table]:
    """A row for each size, a column for each method."""
    base = only(rows, method="base")
    methods = [method for method in METHODS if select(rows, method=method)]
    found = []
    for text, title in zip(TEXTS, ("held-out documents", "FLORES"), strict=True):
        lines = [("0 %", f"{_kept(base):,}", *[number(base[text])] * len(methods))] if base and _kept(base) else []
        for size in sorted(size for size in distinct(rows, "size") if size):
            mine = select(rows, size=size)
            cells = []
            for method in methods:
                row = only(mine, method=method)
                change = percent(row[text] / base[text] - 1, signed=True) if row and base else ""
                cells.append(f"{number(row[text])} ({change})" if row else "–")
            removed = mine[0]["removed"]
            lines.append((f"{100 * removed:.1f} %", f"{round(size / removed) - size:,}", *cells))
        heads = ("removed", "kept", *(f"`{method}`" for method in methods))
        found.append(Table(f"Bits per byte of English, {title}", heads, lines))
    return found


def _kept(base: Row) -> int:
    return base.get("tokens") or 0


def panels(rows: Rows) -> list[Panel]:
    """Bits per byte by share of removed tokens."""
    found = []
    for text, title in zip(TEXTS, ("Held-out English", "English FLORES"), strict=True):
        series = []
        for method in (method for method in METHODS if select(rows, method=method)):
            chosen = [row for row in rows if row["method"] in ("base", method)]
            series.append(Series(method, [100 * row["removed"] for row in chosen], [row[text] for row in chosen]))
        found.append(Panel(title, "percent of the tokens removed", "bits per byte", series))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statement of the paper's Section "Model Compression via Pruning"."""
    base = only(rows, method="base")
    at = [row for row in select(rows, method="leaf-frequency") if 0.6 < row["removed"] < 0.65]
    others = [row for row in rows if row["method"] not in ("base", "leaf-frequency", "merge")]
    leaf = {row["size"]: row for row in select(rows, method="leaf-frequency")}
    if base is None or not at or not others:
        return []
    changes = [at[0][text] / base[text] - 1 for text in TEXTS]
    better = [
        f"{row['method']} at {row['size']:,} ({text.replace('_', '-')})"
        for row in others
        for text in TEXTS
        if row[text] < leaf[row["size"]][text]
    ]
    names = " and ".join(f"`{method}`" for method in distinct(others, "method"))
    return [
        Claim(
            "62.5 % of the tokens can be removed without a noticeable loss",
            max(changes) < 0.01,
            f"bits per byte {percent(changes[0], signed=True)} on held-out text, {percent(changes[1], signed=True)} on "
            "FLORES, without training",
        ),
        Claim(
            f"`leaf-frequency` is better than {names}, at every size and on both texts",
            not better,
            f"better: {', '.join(better) or 'none'}",
        ),
    ]


EXPERIMENT = Experiment(
    name="compression",
    title="What pruning costs the model",
    source="Figure 5 (downstream tasks; here bits per byte)",
    about=(
        "SmolLM2-135M pruned by text of English, without training: bits per byte of English documents that the pruning "
        f"has not seen ({HELD_OUT_BYTES:,} bytes), and of the first {FLORES_LINES} sentences of FLORES. Bits per byte "
        "do not depend on the number of tokens. The paper prunes Llama-3.1-8B by Estonian and English, and measures "
        "downstream tasks. Most of that model's 128,000 tokens are for other languages; most of SmolLM2's 49,152 are "
        "English."
    ),
    measure=lambda setup, cell: [*measure(setup, cell)],
    tables=tables,
    panels=panels,
    claims=claims,
    models=("smollm2",),
    languages=(ENGLISH,),
    parts=("base", *METHODS),
    sizes=SIZES,
    needs=("torch", "transformers"),
    needs_model=True,
    caveat="Weights in bfloat16; the weights of this copy of SmolLM2 were 4-bit before. One model, one language.",
)
