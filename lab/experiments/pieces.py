"""`pieces`: continued training of SentencePiece types, and whether both of their files agree."""

from collections.abc import Iterator

import tokengraft as tg
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup
from lab.experiments.languages import language_of
from lab.experiments.plots import Panel, line
from lab.experiments.tables import Table, distinct, groups, number, only, select


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each size, 0 first."""
    base = setup.tokenizer(cell.model)
    sentences = setup.data.sentences(cell.language)
    n_bytes = sum(len(sentence.encode()) for sentence in sentences)
    extension = tg.extend(base, setup.train_counts(cell.model, cell.language), max(setup.sizes))
    for size in (0, *(size for size in setup.sizes if size <= len(extension))):
        tokenizer = extension[:size].apply(base) if size else base
        encoded = [tokenizer.encode(sentence) for sentence in sentences]
        yield {
            "size": size,
            "characters": len(extension.characters[:size]),
            "bytes_per_token": n_bytes / sum(map(len, encoded)),
            "unreachable_added": sum(i >= base.n_rows for i in tokenizer.structure.unreachable),
            "forms_differ": _forms_differ(tokenizer, sentences, encoded),
        }


def _forms_differ(tokenizer: tg.Tokenizer, sentences: tuple[str, ...], encoded: list[list[int]]) -> int | None:
    """The sentences that the SentencePiece model encodes otherwise than `tokenizer.json`; None without such a model."""
    if not tokenizer.piece_file:
        return None
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_proto=tokenizer.files[tokenizer.piece_file])
    return sum(model.encode(sentence) != ids for sentence, ids in zip(sentences, encoded, strict=True))


def tables(rows: Rows) -> list[Table]:
    """Bytes per token by size."""
    sizes = sorted(distinct(rows, "size"))
    lines = []
    for (model, language), mine in groups(rows, "model", "language"):
        found = [only(mine, size=size) for size in sizes]
        rates = [number(row["bytes_per_token"], 2) if row else "–" for row in found]
        added = max(row["characters"] for row in mine)
        lines.append((model, language_of(language).name, *rates, f"{added:,}"))
    heads = ("tokenizer", "language", "base", *(f"+{size:,}" for size in sizes if size), "missing characters added")
    return [Table("Bytes per token on FLORES", heads, lines)]


def panels(rows: Rows) -> list[Panel]:
    """Bytes per token by size, for each tokenizer."""
    found = []
    for model in distinct(rows, "model"):
        mine = {name: select(rows, model=model, language=name) for name in distinct(rows, "language")}
        series = [line(language_of(name).name, found, "size", "bytes_per_token") for name, found in mine.items()]
        found.append(Panel(model, "added tokens", "bytes per token, FLORES", series))
    return found


def claims(rows: Rows) -> list[Claim]:
    """What must hold for both files of a tokenizer."""
    unreachable = sum(row["unreachable_added"] for row in rows)
    differ = [row["forms_differ"] for row in rows if row["forms_differ"] is not None]
    found = [Claim("No added token is unreachable", unreachable == 0, f"{unreachable:,} tokens")]
    if differ:
        text = "`tokenizer.json` and `tokenizer.model` agree on every sentence (not in the paper)"
        found.append(Claim(text, not sum(differ), f"{sum(differ):,} sentences differ"))
    return found


EXPERIMENT = Experiment(
    name="pieces",
    title="SentencePiece types",
    source="Llama-2 in Tables 1 and 2; the other tokenizers are not in the paper",
    about="Missing characters are added before all other tokens.",
    models=("llama2", "mistral_v3", "gemma3"),
    languages=("et", "hi", "ja", "zh"),
    sizes=(1_000, 4_000, 16_000),
    needs=("sentencepiece",),
    needs_english=False,
)
