"""What must hold for files of results, corpora, records, word lists and checkpoints."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import tokengraft as tg
from fuzz.seeds import MODEL, builders
from fuzz.tokenizer_checks import Difference, cached_tokenizer
from tokengraft.cli.convert import _special_tokens
from tokengraft.distributed import sum_partials_to_file
from tokengraft.errors import TokengraftError
from tokengraft.options.values import lines_of
from tokengraft.pipeline.request import read_recipe

USED_SHARE = 0.03
"""The share of files that were read that are also used, where that takes much longer than reading."""


def _model(folder: Path) -> tg.Tokenizer:
    return cached_tokenizer((folder / MODEL).read_bytes())


def _require_survives(value: Any, folder: Path) -> None:
    """Saved and loaded, the value is the same."""
    again = type(value).load(value.save(folder / "again"))
    if again != value:
        raise Difference("saved and loaded, the value is another one")


def check_counts(folder: Path, random: Random) -> None:
    """A file of counts: it survives, and every step that reads it gives a result or an error."""
    counts = tg.PretokenCounts.load(folder / "counts.parquet")
    repr(counts)
    _require_survives(counts, folder)
    if random.random() > USED_SHARE:
        return
    tokenizer = _model(folder)
    for step in (
        lambda: counts.tokens(tokenizer),
        lambda: tg.extend(tokenizer, counts, 4).apply(tokenizer),
        lambda: tg.prune_order(tokenizer, counts)[:3].apply(tokenizer),
        lambda: counts + counts.scale("1/3"),
    ):
        try:
            step()
        except TokengraftError:
            continue


def check_partial(folder: Path, _: Random) -> None:
    """Partial counts, added up."""
    options = tg.CountOptions(workers=1)
    sum_partials_to_file([folder / "partial.parquet"], _model(folder), folder / "sum.parquet", count_options=options)
    _require_survives(tg.PretokenCounts.load(folder / "sum.parquet"), folder)


def check_extension(folder: Path, random: Random) -> None:
    """An extension: it survives, can be cut and applied."""
    extension = tg.Extension.load(folder / "extension.json")
    repr(extension)
    _require_survives(extension, folder)
    tokenizer = _model(folder)
    extension[: random.randrange(len(extension) + 1)].apply(tokenizer)
    extended = extension.apply(tokenizer)
    if any(token not in extended.ids for token in extension.tokens):
        raise Difference("a new token is missing")


def check_order(folder: Path, random: Random) -> None:
    """A prune order: it survives, can be cut and applied."""
    order = tg.PruneOrder.load(folder / "order.json")
    repr(order)
    _require_survives(order, folder)
    tokenizer = _model(folder)
    order[: random.randrange(len(order) + 1)].apply(tokenizer)
    pruned = order.apply(tokenizer)
    if any(token in pruned.ids for token in order.tokens):
        raise Difference("a removed token is still there")


def check_plan(folder: Path, _: Random) -> None:
    """A plan: it survives, and can be summarised."""
    plan = tg.VocabPlan.load(folder / "plan.json")
    repr(plan)
    again = tg.VocabPlan.load(plan.save(folder / "again"))
    if again != plan:
        raise Difference("saved and loaded, the plan is another one")
    if plan.summary.rows_after != len(plan.sources) or len(plan.moved) > plan.rows_before:
        raise Difference("the plan moves more rows than there are")


def check_record(folder: Path, _: Random) -> None:
    """The record of an adaptation as a recipe."""
    repr(read_recipe(folder / "adaptation.json"))


def check_words(folder: Path, random: Random) -> None:
    """A word list, included in an extension or protected from pruning."""
    tokenizer = _model(folder)
    words = [line for line in lines_of(folder / "words.txt", "include") if line.strip()]
    listed = tg.learn.WordList(tuple(words), exact=random.random() < 0.5)
    extension = tg.extend(tokenizer, _short_counts((folder / MODEL).read_bytes()), 200, include=listed)
    extended = extension.apply(tokenizer)
    for word in extension.included:
        if word.token is not None and extended.encode_pretoken(word.token) != [extended.ids[word.token]]:
            raise Difference(f"the included word {word.word!r} is not one token")


@cache
def _short_counts(raw: bytes) -> tg.PretokenCounts:
    return tg.count(cached_tokenizer(raw), iter(["the cat sat"]))


def check_special(folder: Path, _: Random) -> None:
    """Special tokens for a tiktoken file."""
    tokenizer = tg.load(
        folder / "x" / "x.tiktoken", pattern="cl100k_base", special_tokens=_special_tokens(folder / "special.json")
    )
    repr(tokenizer)


def check_corpus(folder: Path, random: Random) -> None:
    """A corpus: all readers see the same documents, whatever the number of threads."""
    tokenizer = _model(folder)
    (path,) = folder.glob("a.*")
    options = tg.ReadOptions(
        documents=random.choice(("lines", "files")),
        skip_bad=random.random() < 0.5,
        normalize=random.choice((None, None, "nfkc")),
        text_field=random.choice(("text", "text", "text", "id")),
    )
    error, counts = _counted(tokenizer, path, options, workers=1)
    if random.random() < USED_SHARE and (error, counts) != _counted(tokenizer, path, options, workers=2):
        raise Difference("the number of threads changes the counts or the error")
    try:
        texts, totals = builders.read_documents(path, options)
    except TokengraftError as other:
        if error is None:
            raise Difference(f"counting reads what `read_documents` refuses: {other}") from other
        raise
    if error is not None:
        raise Difference(f"`read_documents` reads what counting refuses: {error}")
    if replace(counts.totals, pretokens=0) != totals:
        raise Difference(f"counting read {counts.totals}, `read_documents` {totals}")
    if random.random() > USED_SHARE:
        return
    slow = tg.count(tokenizer, iter(texts), read_options=tg.ReadOptions(normalize=options.normalize))
    if slow.table != counts.table or slow.added != counts.added:
        raise Difference("the counts of the file and those of its documents differ")


def _counted(tokenizer: tg.Tokenizer, path: Path, options: tg.ReadOptions, workers: int) -> tuple[str | None, Any]:
    try:
        return None, tg.count(tokenizer, path, read_options=options, count_options=tg.CountOptions(workers=workers))
    except TokengraftError as error:
        return str(error), None
