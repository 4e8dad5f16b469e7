"""`evaluate`: scores of tokenizers on texts, and of models."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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
)
from tokengraft.measure.scores import Evaluation, Score
from tokengraft.measure.segments import (
    Segmenter,
    Segments,
    StreamedText,
    Text,
    TokenTotals,
    batches,
    lost_bytes,
    open_text,
    read_ahead,
    same_pipelines,
    stream_text,
    text_warnings,
)
from tokengraft.progress import stage
from tokengraft.tokenizer.kind import byte_token
from tokengraft.tokenizer.tokenizer import Tokenizer

Tokenizers = Mapping[str, Tokenizer | str | os.PathLike[str] | Any]
Texts = Mapping[str, PretokenCounts | Text | Corpus]


@stage("measuring tokenizers")
def evaluate(
    tokenizers: Tokenizers,
    texts: Texts,
    *,
    base: str | None = None,
    bits: bool = False,
    edits: bool = True,
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
        edits: Also give edit distances, which take a third of the time.
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
            measured, without = _from_text(loaded, name, text, chosen, edits=edits)
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
    from tokengraft.checkpoint.folder import has_weights

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
    """Those that have text."""
    n_bytes: int = 0
    n_characters: int = 0
    n_words: int = 0
    """Words, separated by white space. 0 for counts, where it is unknown."""

    def add(self, batch: list[str], has_text: np.ndarray) -> None:
        """Adds a batch of documents, and whether each has text."""
        n_bytes, n_characters, n_words = _core.text_size(batch)
        self.documents += int(has_text.sum())
        self.n_bytes += n_bytes
        self.n_characters += n_characters
        self.n_words += n_words

    def bytes_without(self, lost: Mapping[bytes, int]) -> int:
        """Bytes without some characters, at least 0: normalization may have multiplied them."""
        return max(self.n_bytes - lost_bytes(lost), 0)


def _score(name: str, text: str, size: _TextSize, found: TokenTotals) -> Score:
    tokenizer, counted, total = found.tokenizer, found.counted, found.counted.total()
    partial = sum(counted[token_id] for token_id in _partial_tokens(tokenizer))
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
        vocabulary_used=share(len(counted), len(tokenizer)),
        never_produced=len(tokenizer) - len(counted),
        byte_tokens=share(partial, total),
        ceiling=share(n_bytes, found.n_pretokens) if tokenizer.kind == "byte-level" else None,
    )


def _partial_tokens(tokenizer: Tokenizer) -> Collection[int]:
    """The ids of the tokens that are not a sequence of complete characters."""
    if tokenizer.kind == "sentencepiece":  # where a byte may be a character
        names = map(byte_token, range(256 if tokenizer.byte_fallback else 0))
        return {token_id for name in names if (token_id := tokenizer.core_vocabulary.id_of(name)) is not None}
    return tokenizer.core_model.partial_tokens(tokenizer.unlisted)


def _from_counts(loaded: Mapping[str, Tokenizer], name: str, counts: PretokenCounts) -> dict[str, Score]:
    totals = counts.totals
    if not totals.pretokens and not counts.added:
        raise CountsError(f"the counts `{name}` are empty", hint="count a corpus that has text")
    size = _TextSize(totals.documents, totals.bytes, totals.characters)
    return {key: _score(key, name, size, TokenTotals.of_counts(tok, counts)) for key, tok in loaded.items()}


def _from_text(
    loaded: Mapping[str, Tokenizer], name: str, text: Text | StreamedText, base: str | None, *, edits: bool
) -> tuple[dict[str, Score], dict[str, int]]:
    """The scores by tokenizer, and of how many documents the edit distance is unknown."""
    size, totals = _TextSize(), {key: TokenTotals(tok) for key, tok in loaded.items()}
    compared = dict[str, DocumentComparison]()
    if base is not None:
        compared = {key: DocumentComparison(tok, loaded[base], edits=edits) for key, tok in loaded.items()}
    segmenters = [(names, Segmenter(*(loaded[name] for name in names))) for names in same_pipelines(loaded)]

    def measure(batch: list[str]) -> None:
        # Blank lines of text files are no documents, so blank rows of JSON lines and Parquet are none either.
        has_text = np.array([bool(document.strip()) for document in batch])
        size.add(batch, has_text)
        segments = dict[str, Segments]()
        for names, segmenter in segmenters:
            segments |= zip(names, segmenter.segment_by_each(batch), strict=True)
        for key, found in segments.items():
            totals[key].add(batch, found)
        for key, comparison in compared.items():
            comparison.add(segments[key], segments[base or key], has_text)

    read = batches(text.documents)
    for batch in read_ahead(read) if isinstance(text, StreamedText) and text.is_in_files else read:
        measure(batch)
    scores = {key: _score(key, name, size, found) for key, found in totals.items()}
    for key, comparison in compared.items():
        used = share(len(totals[key].counted.keys() & comparison.added), len(comparison.added))
        scores[key] = replace(scores[key], added_used=used, **comparison.measures())
    return scores, {key: comparison.unmeasured for key, comparison in compared.items() if comparison.unmeasured}
