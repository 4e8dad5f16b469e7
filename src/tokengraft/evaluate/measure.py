"""`evaluate`: measures tokenizers on texts, with the measures of the paper and a few more."""

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokengraft.arguments import checked
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError
from tokengraft.evaluate.evaluation import Evaluation, Score
from tokengraft.evaluate.metrics import edit_distances, exact_match, renyi_efficiency, share, used_share, win_rate
from tokengraft.evaluate.segments import Segments, Text, lost_bytes, open_text, segment, text_warnings
from tokengraft.formats.sources import load
from tokengraft.log import stage
from tokengraft.tokenizer.alphabet import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

Tokenizers = Mapping[str, Tokenizer | str | os.PathLike[str] | Any]
Texts = Mapping[str, PretokenCounts | Text | Corpus]


@checked
@stage("measuring tokenizers")
def evaluate(
    tokenizers: Tokenizers, texts: Texts, *, base: str | None = None, read_options: ReadOptions | None = None
) -> Evaluation:
    """Scores of every tokenizer on every text.

    Args:
        tokenizers: By name: tokenizers, or whatever `load` reads.
        texts: By name: whatever `count` reads, `PretokenCounts`, or a file of them. Counts give all measures except
            those that compare documents, and only for tokenizers with their pipeline.
        base: The tokenizer to compare the others with; by default the first, if there are several.
        read_options: How to read the texts; by default text files have one document per line.

    Raises:
        OptionError: There are no tokenizers or texts, the base does not exist, or ``read_options`` is given and all
            texts are counts.
        CorpusError: A text is empty or cannot be read.
        CountsError: Counts were made for another pipeline.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> scores = tg.evaluate({"base": tok, "new": new}, {"et": "et.txt", "en": "en.txt"}).scores
        >>> [(score.tokenizer, score.text, round(score.bytes_per_token, 2)) for score in scores]
        [('base', 'et', 1.32), ('base', 'en', 3.26), ('new', 'et', 2.56), ('new', 'en', 3.26)]
    """
    if not tokenizers or not texts:
        raise OptionError("no tokenizer or no text was given", hint="pass at least one of each, with a name")
    loaded = {name: tok if isinstance(tok, Tokenizer) else load(tok) for name, tok in tokenizers.items()}
    chosen = base if base is not None else next(iter(loaded)) if len(loaded) > 1 else None
    if chosen is not None and chosen not in loaded:
        raise OptionError(f"there is no tokenizer {chosen!r}", hint=f"the base is one of {', '.join(loaded)}")
    opened = {name: open_text(name, source, read_options) for name, source in texts.items()}
    if read_options and all(isinstance(text, PretokenCounts) for text in opened.values()):
        raise OptionError(
            "options for reading text were given, but all texts are counts", hint="leave them out, or pass text"
        )
    scores = []
    for name, text in opened.items():
        if isinstance(text, PretokenCounts):
            measured = {key: _from_counts(key, tok, name, text) for key, tok in loaded.items()}
        else:
            measured = _from_text(loaded, replace(text, name=name), chosen)
        scores += [_against(measured, key, chosen) for key in loaded]
    warnings = tuple(warning for name, text in opened.items() for warning in text_warnings(name, text))
    ordered = sorted(scores, key=lambda score: [*loaded].index(score.tokenizer))
    missing = "rapidfuzz is not installed: edit distances are not computed"
    lacking = chosen and len(loaded) > 1 and edit_distances([], []) is None
    dropped = [
        f"{score.tokenizer} drops {score.dropped_bytes:,} of the {score.bytes:,} bytes of {score.text} or replaces "
        "them by its unknown token: measures by bytes or characters do not include them"
        for score in ordered
        if score.dropped_bytes
    ]
    return Evaluation(tuple(ordered), chosen, (*dropped, *((missing,) if lacking else ())), warnings)


@dataclass(frozen=True)
class _TextSize:
    """The size of a text, which does not depend on the tokenizer."""

    text: str
    documents: int
    n_bytes: int
    n_characters: int
    n_words: int | None

    def without(self, lost: Mapping[bytes, int]) -> "_TextSize":
        """The size without some characters, at least 0: normalization may have multiplied them."""
        n_bytes = max(self.n_bytes - lost_bytes(lost), 0)
        return replace(self, n_bytes=n_bytes, n_characters=max(self.n_characters - sum(lost.values()), 0))


def _score(
    name: str,
    tokenizer: Tokenizer,
    text: _TextSize,
    counted: Mapping[int, int],
    lost: Mapping[bytes, int],
    pretokens: int,
) -> Score:
    size, total = text.without(lost), sum(counted.values())
    partial = sum(count for i, count in counted.items() if _is_partial(tokenizer, tokenizer.strings[i]))
    return Score(
        tokenizer=name,
        text=size.text,
        documents=size.documents,
        bytes=text.n_bytes,
        dropped_bytes=text.n_bytes - size.n_bytes,
        tokens=total,
        bytes_per_token=share(size.n_bytes, total),
        bytes_per_token_by_merges=share(size.n_bytes, total),
        characters_per_token=share(size.n_characters, total),
        tokens_per_word=share(total, size.n_words) if size.n_words else None,
        renyi_efficiency=renyi_efficiency(counted.values()),
        vocabulary_used=used_share(counted, tokenizer.ids.values()),
        never_produced=len(tokenizer.ids) - len(counted),
        byte_tokens=share(partial, total),
        ceiling=share(size.n_bytes, pretokens) if tokenizer.kind == "byte-level" else None,
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


def _from_counts(name: str, tokenizer: Tokenizer, text: str, counts: PretokenCounts) -> Score:
    totals = counts.totals
    if not totals.pretokens and not counts.added:
        raise CountsError(f"the counts `{text}` are empty", hint="count a corpus that has text")
    size = _TextSize(text, totals.documents, totals.bytes, totals.characters, None)
    pretokens = totals.pretokens + sum(counts.added.values())
    score = _score(name, tokenizer, size, counts.tokens(tokenizer), counts.lost(tokenizer), pretokens)
    if not tokenizer.ignore_merges:
        return score
    n_tokens = sum(counts.tokens(tokenizer, by_merges=True).values())
    return _with_merges_alone(score, size, n_tokens, counts.lost(tokenizer, by_merges=True))


def _with_merges_alone(score: Score, size: _TextSize, n_tokens: int, lost: Mapping[bytes, int]) -> Score:
    """The score with bytes per token for merge skipping off."""
    return replace(score, bytes_per_token_by_merges=share(size.without(lost).n_bytes, n_tokens))


def _from_text(loaded: Mapping[str, Tokenizer], text: Text, base: str | None) -> dict[str, Score]:
    characters = sum(map(len, text.documents))
    size = _TextSize(text.name, len(text.documents), text.n_bytes, characters, text.n_words)
    segments = {name: segment(tok, text) for name, tok in loaded.items()}
    scores = {}
    for name, tok in loaded.items():
        ours = segments[name]
        scores[name] = _score(name, tok, size, ours.counted(), ours.lost, ours.n_pretokens)
        if tok.ignore_merges:
            slow = segment(tok, text, by_merges=True)
            scores[name] = _with_merges_alone(scores[name], size, sum(slow.lengths), slow.lost)
        if base is not None:
            scores[name] = _with_documents(scores[name], tok, ours, loaded[base], segments[base])
    return scores


def _with_documents(score: Score, ours: Tokenizer, segments: Segments, base: Tokenizer, before: Segments) -> Score:
    """The score with the measures that compare each document with the base."""
    names, base_names = token_names(ours, base)
    theirs, mine = before.tokens(base_names), segments.tokens(names)
    distances = edit_distances(mine, theirs)
    known = set(base_names.values())
    added = [token_id for token_id, name in names.items() if name not in known]
    return replace(
        score,
        win_rate=win_rate(segments.lengths, before.lengths),
        exact_match=exact_match(mine, theirs),
        edit_distance=sum(distances) / len(distances) if distances else None,
        worst_edit_distance=max(distances) if distances else None,
        added_used=used_share(segments.counted(), added),
    )


def token_names(ours: Tokenizer, theirs: Tokenizer) -> tuple[Mapping[int, Hashable], Mapping[int, Hashable]]:
    """Names of tokens for comparing two tokenizers: strings, or bytes if their kinds differ."""
    if ours.kind == theirs.kind:
        return ours.strings, theirs.strings
    return {token.id: token.bytes for token in ours.tokens}, {token.id: token.bytes for token in theirs.tokens}


def _against(measured: Mapping[str, Score], name: str, base: str | None) -> Score:
    score = measured[name]
    if base is None or not score.bytes_per_token or not measured[base].bytes_per_token:
        return score
    return replace(score, gain=score.bytes_per_token / (measured[base].bytes_per_token or 1) - 1)
