"""`evaluate`: scores of tokenizers on texts. `Evaluation`: the scores as data, table, CSV, JSON and HTML."""

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tokengraft import _core
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, Progress, option, require_type
from tokengraft.formats.sources import load
from tokengraft.measure.metrics import (
    LONGEST_DIFFERENCE,
    DocumentComparison,
    renyi_efficiency,
    share,
    used_share,
)
from tokengraft.measure.segments import (
    Segmenter,
    Segments,
    Text,
    TokenTotals,
    batches,
    lost_bytes,
    open_text,
    same_pipelines,
    stream_text,
    text_warnings,
)
from tokengraft.progress import stage
from tokengraft.representation import Table, aligned, sentences, short, shown
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

AVERAGE = "average"


@shown
@dataclass(frozen=True)
class Score:
    """The scores of one tokenizer on one text. None means not available: counts have no documents."""

    tokenizer: str
    text: str
    documents: int
    bytes: int
    tokens: int
    bytes_per_token: float | None
    bytes_per_token_by_merges: float | None
    """With merge skipping off."""
    characters_per_token: float | None
    tokens_per_word: float | None
    """Fertility. Words are separated by white space."""
    renyi_efficiency: float | None
    """Of order 2.5, over the token types that occur."""
    vocabulary_used: float | None
    """Share of the vocabulary that occurs in the text."""
    never_produced: int
    byte_tokens: float | None
    """Share of tokens that are not complete characters: byte fallback, or parts of a character."""
    ceiling: float | None
    """The maximum of bytes per token with this pre-tokenizer: bytes per pretoken."""
    gain: float | None = None
    """Against the base: relative increase of bytes per token."""
    win_rate: float | None = None
    """Against the base: share of documents with fewer tokens. Documents with as many count half."""
    exact_match: float | None = None
    """Against the base: share of documents with unchanged segmentation."""
    edit_distance: float | None = None
    """Against the base: mean number of token edits divided by the length of the longer segmentation."""
    worst_edit_distance: float | None = None
    added_used: float | None = None
    """Against the base: share of the new tokens that occur in the text."""
    bits_per_byte: float | None = None
    """Of the model, if models were scored: fewer is better, whatever the tokenizer."""
    bits_change: float | None = None
    """Against the base: relative change of bits per byte."""
    new_bits_per_byte: float | None = None
    """Bits per byte of the tokens that the base lacks."""
    kept_bits_per_byte: float | None = None
    """Bits per byte of all other tokens."""
    dropped_bytes: int = 0
    """Bytes of characters that the tokenizer drops or replaces by its unknown token. They are included in
    ``bytes``, but not in any measure by bytes or characters."""


@shown
@dataclass(frozen=True)
class Evaluation:
    """Scores of every tokenizer on every text, tokenizers in the order given.

    In a notebook it is displayed as a table. ``print`` shows the same table as text.
    """

    scores: tuple[Score, ...]
    base: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """What was replaced or skipped when the texts were read."""

    def __getitem__(self, key: tuple[str, str]) -> Score:
        """The score of (tokenizer, text)."""
        known = {(score.tokenizer, score.text): score for score in self.scores}
        if key not in known:
            raise OptionError(f"there is no score of {key}", hint=f"choose one of {short(list(known), 200)}")
        return known[key]

    def averages(self) -> tuple[Score, ...]:
        """For each tokenizer the mean of every measure over all texts; empty if there is only one text."""
        names = list(dict.fromkeys(score.tokenizer for score in self.scores))
        groups = [[score for score in self.scores if score.tokenizer == name] for name in names]
        return tuple(_average(group) for group in groups if len(group) > 1)

    def as_dict(self) -> dict[str, Any]:
        """The scores as JSON-ready data."""
        return {
            "base": self.base,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "scores": [self._data(score) for score in self.scores],
            "averages": [self._data(score) for score in self.averages()],
        }

    def _data(self, score: Score) -> dict[str, Any]:
        """A score as data, without the measures of models if only tokenizers were measured."""
        has_bits = any(score.bits_per_byte is not None for score in self.scores)
        return {name: value for name, value in asdict(score).items() if has_bits or name not in BITS}

    def to_json(self) -> str:
        """The scores as JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def to_csv(self) -> str:
        """The scores as CSV, one row for each tokenizer and text."""
        out = io.StringIO()
        rows = [self._data(score) for score in self.scores]
        writer = csv.DictWriter(out, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def table(self, *, wide: bool = True) -> tuple[list[str], list[list[str]]]:
        """The column heads and rows of the table: all measures of each tokenizer and text, or those that matter most.

        Of two tokenizers, the short table has one row for each text: before → after, with the change.
        """
        heads, rows = self._changes() if not wide and self._other else self._measures(wide=wide)
        used = [at for at in range(len(heads)) if any(row[at] for row in rows)]
        return [heads[at] for at in used], [[row[at] for at in used] for row in rows]

    @property
    def _other(self) -> str | None:
        """The tokenizer that is compared with the base; None if there is not exactly one."""
        others = {score.tokenizer for score in self.scores} - {self.base}
        return others.pop() if self.base is not None and len(others) == 1 else None

    def _changes(self) -> tuple[list[str], list[list[str]]]:
        rows = []
        for text in dict.fromkeys(score.text for score in self.scores):
            before, after = self[self.base or "", text], self[self._other or "", text]
            rates = f"{_shown(before.bytes_per_token, '.3f')} → {_shown(after.bytes_per_token, '.3f')}"
            more = [_shown(after.exact_match, ".1%"), _shown(after.added_used, ".1%")]
            of_models = ["", ""]
            if before.bits_per_byte is not None:
                of_models = [f"{before.bits_per_byte:.3f} → {_shown(after.bits_per_byte, '.3f')}"]
                of_models.append(_shown(after.bits_change, "+.1%"))
            rows.append([text, rates, changed(before.tokens, after.tokens), *more, *of_models])
        return ["text", "bytes/token", "tokens", "same", "new used", "bits/byte", "bits"], rows

    def _measures(self, *, wide: bool) -> tuple[list[str], list[list[str]]]:
        columns = _COLUMNS if wide else [column for column in _COLUMNS if column[1] in _MAIN]
        rows = [[_shown(getattr(score, name), form) for _, name, form in columns] for score in self.scores]
        return [head for head, _, _ in columns], rows

    def __str__(self) -> str:
        heads, rows = self.table()
        below = [*(f"note: {note}" for note in self.notes), *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*aligned(heads, rows), *below])

    def _facts(self) -> dict[str, Any]:
        return {"base": self.base} if self.base else {}

    def _tables(self) -> Iterator[Table]:
        heads, rows = self.table()
        yield Table("scores", tuple(heads), rows, len(rows))
        yield from sentences("notes", self.notes)
        yield from sentences("warnings", self.warnings)


def changed(before: int, after: int) -> str:
    """The relative change of a number. What rounds to nothing has no sign.

    >>> changed(200, 150), changed(3000, 2999), changed(0, 5)
    ('-25.0%', '0.0%', '')
    """
    if not before:
        return ""
    shown = f"{after / before - 1:+.1%}"
    return shown[1:] if shown[1:] == "0.0%" else shown


LEGEND = {
    "bytes/token": "more is better",
    "tokens/word": "fewer is better",
    "tokens": "change for the same text",
    "gain": "change of bytes/token",
    "same": "documents with unchanged tokens",
    "new used": "new tokens that occur in the text",
    "bits/byte": "of the model, fewer is better",
}
"""What the columns of the short table mean."""
BITS = ("bits_per_byte", "bits_change", "new_bits_per_byte", "kept_bits_per_byte")
"""The measures of models."""
_MAIN = ("tokenizer", "text", "bytes_per_token", "tokens_per_word", "gain", "exact_match", "added_used", *BITS[:2])
_COLUMNS = (
    ("tokenizer", "tokenizer", ""),
    ("text", "text", ""),
    ("bytes/token", "bytes_per_token", ".3f"),
    ("by merges", "bytes_per_token_by_merges", ".3f"),
    ("ceiling", "ceiling", ".2f"),
    ("tokens/word", "tokens_per_word", ".2f"),
    ("rényi", "renyi_efficiency", ".3f"),
    ("used", "vocabulary_used", ".1%"),
    ("bytes", "byte_tokens", ".1%"),
    ("gain", "gain", "+.1%"),
    ("wins", "win_rate", ".0%"),
    ("same", "exact_match", ".1%"),
    ("edits", "edit_distance", ".3f"),
    ("new used", "added_used", ".1%"),
    ("bits/byte", "bits_per_byte", ".3f"),
    ("bits", "bits_change", "+.1%"),
    ("new", "new_bits_per_byte", ".3f"),
    ("kept", "kept_bits_per_byte", ".3f"),
)


def _shown(value: Any, form: str) -> str:
    return "" if value is None else format(value, form)


def _average(scores: Sequence[Score]) -> Score:
    values: dict[str, Any] = {"tokenizer": scores[0].tokenizer, "text": AVERAGE}
    for name in (field.name for field in fields(Score) if field.name not in values):
        column = [getattr(score, name) for score in scores]
        if name in ("documents", "bytes", "tokens", "dropped_bytes"):
            values[name] = sum(column)
        elif name == "never_produced":
            values[name] = min(column)
        else:
            values[name] = None if None in column else sum(column) / len(column)
    return Score(**values)


Tokenizers = Mapping[str, Tokenizer | str | os.PathLike[str] | Any]
Texts = Mapping[str, PretokenCounts | Text | Corpus]


@stage("measuring tokenizers")
def evaluate(
    tokenizers: Tokenizers,
    texts: Texts,
    *,
    base: str | None = None,
    bits: bool = False,
    read_options: ReadOptions | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Scores of every tokenizer on every text, and of models with ``bits``.

    Args:
        tokenizers: By name: tokenizers, or whatever `load` reads.
        texts: By name: whatever `count` reads, `PretokenCounts`, or a file of them. Counts give all measures except
            those that compare documents, and only for tokenizers with their pipeline.
        base: The tokenizer to compare the others with; by default the first, if there are several.
        bits: Also run the models and give their bits per byte, which can be compared across vocabularies, as loss per
            token cannot. All of ``tokenizers`` must be folders with weights, and no text may be counts. Needs torch.
        read_options: How to read the texts; by default text files have one document per line.
        progress: Called with the bytes that models were scored on.

    Raises:
        OptionError: There are no tokenizers or texts, the base does not exist, ``read_options`` is given and all
            texts are counts, or ``bits`` is asked for without models.
        CheckpointError: A model cannot be loaded or run.
        CorpusError: A text is empty or cannot be read.
        CountsError: Counts were made for another pipeline.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> scores = tg.evaluate({"base": tok, "new": new}, {"et": "et.txt", "en": "en.txt"}).scores
        >>> [(score.tokenizer, score.text, round(score.bytes_per_token, 2)) for score in scores]
        [('base', 'et', 1.32), ('base', 'en', 3.26), ('new', 'et', 2.56), ('new', 'en', 3.26)]
    """
    require_type("tokenizers", tokenizers, Mapping, hint="pass tokenizers by name: {'base': tokenizer}")
    require_type("texts", texts, Mapping, hint="pass texts by name: {'et': 'et.txt'}")
    if not tokenizers or not texts:
        raise OptionError("no tokenizer or no text was given", hint="pass at least one of each, with a name")
    loaded = {name: tok if isinstance(tok, Tokenizer) else load(tok) for name, tok in tokenizers.items()}
    chosen = base if base is not None else next(iter(loaded)) if len(loaded) > 1 else None
    if chosen is not None and chosen not in loaded:
        raise OptionError(f"there is no tokenizer {chosen!r}", hint=f"the base is one of {', '.join(loaded)}")
    if bits:
        texts = {name: open_text(name, source, read_options) for name, source in texts.items()}
        _require_models(tokenizers, texts)
    opened = {name: stream_text(name, source, read_options) for name, source in texts.items()}
    if read_options and all(isinstance(text, PretokenCounts) for text in opened.values()):
        raise OptionError(
            "options for reading text were given, but all texts are counts", hint="leave them out, or pass text"
        )
    scores, unmeasured = list[Score](), dict[tuple[str, str], int]()
    for name, text in opened.items():
        if isinstance(text, PretokenCounts):
            measured = _from_counts(loaded, name, text)
        else:
            measured, without = _from_text(loaded, name, text.documents, chosen)
            unmeasured |= {(key, name): n for key, n in without.items()}
        base_rate = measured[chosen].bytes_per_token if chosen is not None else None
        for score in measured.values():
            gain = score.bytes_per_token / base_rate - 1 if score.bytes_per_token and base_rate else None
            scores.append(replace(score, gain=gain))
    warnings = tuple(warning for name, text in opened.items() for warning in text_warnings(name, text))
    ordered = sorted(scores, key=lambda score: [*loaded].index(score.tokenizer))
    if bits:
        first = {chosen: tokenizers[chosen]} if chosen is not None else {}
        ordered = [*_with_bits(ordered, first | dict(tokenizers), texts, progress)]
    return Evaluation(tuple(ordered), chosen, (*_notes(ordered, unmeasured),), warnings)


def _require_models(tokenizers: Tokenizers, texts: Texts) -> None:
    """Refuses to score tokenizers without weights, and counts."""
    from tokengraft.checkpoint.layout import has_weights

    for name, source in tokenizers.items():
        if not isinstance(source, str | os.PathLike) or not has_weights(source):
            raise OptionError(
                f"{option('bits')} runs models, and {name!r} is not a folder with weights",
                hint=f"leave out {option('bits')}, or pass folders of models",
            )
    counts = next((name for name, text in texts.items() if isinstance(text, PretokenCounts)), None)
    if counts is not None:
        raise OptionError(f"{option('bits')} reads text, and {counts!r} is counts", hint="pass text")


def _with_bits(
    scores: Iterable[Score], models: Mapping[str, Any], texts: Mapping[str, Any], progress: Progress | None
) -> Iterator[Score]:
    """The scores with the bits per byte of models, the base first."""
    from tokengraft.measure.bits import score_models

    found = score_models(models, texts, progress=progress)
    for score in scores:
        every, new = found[score.tokenizer, score.text]
        first = found[next(iter(models)), score.text][0].bits
        kept = every.bytes - new.bytes
        yield replace(
            score,
            bits_per_byte=every.bits / every.bytes,
            bits_change=every.bits / first - 1 if first and score.tokenizer != next(iter(models)) else None,
            new_bits_per_byte=share(new.bits, new.bytes),
            kept_bits_per_byte=share(every.bits - new.bits, kept) if new.bytes and kept > 0 else None,
        )


def _notes(scores: Sequence[Score], unmeasured: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """What some measures leave out."""
    dropped = [
        f"{score.tokenizer} drops {score.dropped_bytes:,} of the {score.bytes:,} bytes of {score.text}"
        for score in scores
        if score.dropped_bytes
    ]
    if dropped:
        yield (
            f"{', '.join(dropped)}, or replaces them by its unknown token: measures by bytes or characters do not "
            "include them"
        )
    for score in scores:
        if n := unmeasured.get((score.tokenizer, score.text)):
            yield (
                f"{score.tokenizer}: {n:,} of the {score.documents:,} documents of {score.text} are left out of the "
                f"edit distances, because they differ over more than {LONGEST_DIFFERENCE:,} tokens"
            )


@dataclass
class _TextSize:
    """The size of a text, which does not depend on the tokenizer."""

    documents: int = 0
    n_bytes: int = 0
    n_characters: int = 0
    n_words: int = 0
    """Words, separated by white space. 0 for counts, where it is unknown."""

    def add(self, batch: list[str]) -> None:
        """Adds a batch of documents."""
        n_bytes, n_characters, n_words = _core.text_size(batch)
        self.documents += len(batch)
        self.n_bytes += n_bytes
        self.n_characters += n_characters
        self.n_words += n_words

    def bytes_without(self, lost: Mapping[bytes, int]) -> int:
        """Bytes without some characters, at least 0: normalization may have multiplied them."""
        return max(self.n_bytes - lost_bytes(lost), 0)


def _score(name: str, text: str, size: _TextSize, found: TokenTotals) -> Score:
    tokenizer, counted, total = found.tokenizer, found.counted, found.counted.total()
    partial = sum(count for i, count in counted.items() if _is_partial(tokenizer, tokenizer.strings[i]))
    n_bytes = size.bytes_without(found.lost)
    return Score(
        tokenizer=name,
        text=text,
        documents=size.documents,
        bytes=size.n_bytes,
        dropped_bytes=size.n_bytes - n_bytes,
        tokens=total,
        bytes_per_token=share(n_bytes, total),
        bytes_per_token_by_merges=share(size.bytes_without(found.lost_by_merges), found.n_by_merges),
        characters_per_token=share(max(size.n_characters - found.lost.total(), 0), total),
        tokens_per_word=share(total, size.n_words),
        renyi_efficiency=renyi_efficiency(counted.values()),
        vocabulary_used=used_share(counted, tokenizer.ids.values()),
        never_produced=len(tokenizer.ids) - len(counted),
        byte_tokens=share(partial, total),
        ceiling=share(n_bytes, found.n_pretokens) if tokenizer.kind == "byte-level" else None,
    )


def _is_partial(tokenizer: Tokenizer, string: str) -> bool:
    """Whether a token is not a sequence of complete characters."""
    if tokenizer.kind == "sentencepiece":
        return tokenizer.byte_fallback and len(string) == 6 and string.startswith("<0x")
    try:
        token_bytes(string, tokenizer.kind).decode()
    except UnicodeDecodeError:
        return True
    return False


def _from_counts(loaded: Mapping[str, Tokenizer], name: str, counts: PretokenCounts) -> dict[str, Score]:
    totals = counts.totals
    if not totals.pretokens and not counts.added:
        raise CountsError(f"the counts `{name}` are empty", hint="count a corpus that has text")
    size = _TextSize(totals.documents, totals.bytes, totals.characters)
    return {key: _score(key, name, size, TokenTotals.of_counts(tok, counts)) for key, tok in loaded.items()}


def _from_text(
    loaded: Mapping[str, Tokenizer], name: str, documents: Iterable[str], base: str | None
) -> tuple[dict[str, Score], dict[str, int]]:
    """The scores by tokenizer, and of how many documents the edit distance is unknown."""
    size, totals = _TextSize(), {key: TokenTotals(tok) for key, tok in loaded.items()}
    compared = {key: DocumentComparison(tok, loaded[base]) for key, tok in loaded.items()} if base is not None else {}
    segmenters = [(names, Segmenter(*(loaded[name] for name in names))) for names in same_pipelines(loaded)]
    for batch in batches(documents):
        size.add(batch)
        segments = dict[str, Segments]()
        for names, segmenter in segmenters:
            segments |= zip(names, segmenter.segment_by_each(batch), strict=True)
        for key, found in segments.items():
            totals[key].add(batch, found)
        for key, comparison in compared.items():
            comparison.add(segments[key], segments[base or key])
    scores = {key: _score(key, name, size, found) for key, found in totals.items()}
    for key, comparison in compared.items():
        scores[key] = replace(
            scores[key],
            win_rate=comparison.win_rate,
            exact_match=comparison.exact_match,
            edit_distance=comparison.edit_distance,
            worst_edit_distance=comparison.worst_edit_distance,
            added_used=used_share(totals[key].counted, comparison.added),
        )
    return scores, {key: comparison.unmeasured for key, comparison in compared.items() if comparison.unmeasured}
