"""`evaluate`: what tokenizers make of texts, measured as the paper does and a little further."""

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from tokengraft.corpus import Corpus, ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError
from tokengraft.evaluate.evaluation import Evaluation, Score
from tokengraft.evaluate.metrics import edit_distances, exact_match, renyi_efficiency, share, used_share, win_rate
from tokengraft.evaluate.segments import Segments, Text, lost_bytes, open_text, segment, text_warnings
from tokengraft.formats.sources import load
from tokengraft.tokenizer.alphabet import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

Tokenizers = Mapping[str, Tokenizer | str | os.PathLike[str]]
Texts = Mapping[str, PretokenCounts | Text | Corpus]


def evaluate(
    tokenizers: Tokenizers, texts: Texts, *, base: str | None = None, read_options: ReadOptions | None = None
) -> Evaluation:
    """Scores of every tokenizer on every text.

    Args:
        tokenizers: Tokenizers, or where they are, by name.
        texts: By name: whatever `count` reads, `PretokenCounts`, or a file of them. A list of strings is taken for
            paths; documents in memory are given as any other iterable, such as ``iter(texts)``. Counts have all
            measures but those that compare documents, and only for tokenizers of their pipeline.
        base: The tokenizer that the others are measured against; by default the first, where there are several.
        read_options: How to read the texts; by default text files have one document per line.

    Raises:
        OptionError: There is nothing to compare, no such base, or a reading and nothing to read by it.
        CorpusError: A text is empty or cannot be read.
        CountsError: Counts were made for another pipeline.

    Examples:
        >>> print(evaluate({"base": tok, "new": new}, {"et": "et.txt"}))  # doctest: +SKIP
    """
    if not tokenizers or not texts:
        raise OptionError("there is nothing to evaluate", hint="pass tokenizers and texts, each with a name")
    loaded = {name: tok if isinstance(tok, Tokenizer) else load(tok) for name, tok in tokenizers.items()}
    chosen = base if base is not None else next(iter(loaded)) if len(loaded) > 1 else None
    if chosen is not None and chosen not in loaded:
        raise OptionError(f"there is no tokenizer {chosen!r}", hint=f"the base is one of {', '.join(loaded)}")
    opened = {name: open_text(name, source, read_options) for name, source in texts.items()}
    if read_options and all(isinstance(text, PretokenCounts) for text in opened.values()):
        raise OptionError(
            "options for reading text were given, and all texts are counts", hint="leave them out, or pass text"
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
    missing = "rapidfuzz is not installed: edit distances are left out"
    lacking = chosen and len(loaded) > 1 and edit_distances([], []) is None
    dropped = [
        f"{score.tokenizer} drops {score.dropped_bytes:,} of the {score.bytes:,} bytes of {score.text}, or has its "
        "unknown token for them: they are left out of what is measured by bytes or characters"
        for score in ordered
        if score.dropped_bytes
    ]
    return Evaluation(tuple(ordered), chosen, (*dropped, *((missing,) if lacking else ())), warnings)


@dataclass(frozen=True)
class _TextSize:
    """Numbers of a text that do not depend on the tokenizer."""

    text: str
    documents: int
    n_bytes: int
    n_characters: int
    n_words: int | None

    def without(self, lost: Mapping[bytes, int]) -> "_TextSize":
        """The same of the text that is left without some characters. Normalization may have made more of them."""
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
    facts, total = text.without(lost), sum(counted.values())
    strings = {i: string for string, i in tokenizer.ids.items() if i in counted}
    partial = sum(count for i, count in counted.items() if _is_partial(tokenizer, strings[i]))
    return Score(
        tokenizer=name,
        text=facts.text,
        documents=facts.documents,
        bytes=text.n_bytes,
        dropped_bytes=text.n_bytes - facts.n_bytes,
        tokens=total,
        bytes_per_token=share(facts.n_bytes, total),
        bytes_per_token_by_merges=share(facts.n_bytes, total),
        characters_per_token=share(facts.n_characters, total),
        tokens_per_word=share(total, facts.n_words) if facts.n_words else None,
        renyi_efficiency=renyi_efficiency(counted.values()),
        vocabulary_used=used_share(counted, tokenizer.ids.values()),
        never_produced=len(tokenizer.ids) - len(counted),
        byte_tokens=share(partial, total),
        ceiling=share(facts.n_bytes, pretokens) if tokenizer.kind == "byte-level" else None,
    )


def _is_partial(tokenizer: Tokenizer, string: str) -> bool:
    """Whether a token is no whole characters."""
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
    facts = _TextSize(text, totals.documents, totals.bytes, totals.characters, None)
    pretokens = totals.pretokens + sum(counts.added.values())
    score = _score(name, tokenizer, facts, counts.tokens(tokenizer), counts.lost(tokenizer), pretokens)
    if not tokenizer.ignore_merges:
        return score
    n_tokens = sum(counts.tokens(tokenizer, by_merges=True).values())
    return _with_merges_alone(score, facts, n_tokens, counts.lost(tokenizer, by_merges=True))


def _with_merges_alone(score: Score, facts: _TextSize, n_tokens: int, lost: Mapping[bytes, int]) -> Score:
    """The score with what the text comes to where merge skipping is off."""
    return replace(score, bytes_per_token_by_merges=share(facts.without(lost).n_bytes, n_tokens))


def _from_text(loaded: Mapping[str, Tokenizer], text: Text, base: str | None) -> dict[str, Score]:
    characters = sum(map(len, text.documents))
    facts = _TextSize(text.name, len(text.documents), text.n_bytes, characters, text.n_words)
    segments = {name: segment(tok, text) for name, tok in loaded.items()}
    scores = {}
    for name, tok in loaded.items():
        ours = segments[name]
        scores[name] = _score(name, tok, facts, ours.counted(), ours.lost, ours.n_pretokens)
        if tok.ignore_merges:
            slow = segment(tok, text, by_merges=True)
            scores[name] = _with_merges_alone(scores[name], facts, sum(slow.lengths), slow.lost)
        if base is not None:
            scores[name] = _with_documents(scores[name], tok, ours, loaded[base], segments[base])
    return scores


def _with_documents(score: Score, ours: Tokenizer, segments: Segments, base: Tokenizer, before: Segments) -> Score:
    """What comparing with the base, document by document, adds to a score."""
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


def token_names(ours: Tokenizer, theirs: Tokenizer) -> tuple[dict[int, Hashable], dict[int, Hashable]]:
    """Names of tokens by which two tokenizers may be compared: strings, or bytes where they spell them differently."""
    if ours.kind == theirs.kind:
        return {i: string for string, i in ours.ids.items()}, {i: string for string, i in theirs.ids.items()}
    return {token.id: token.bytes for token in ours.tokens}, {token.id: token.bytes for token in theirs.tokens}


def _against(measured: Mapping[str, Score], name: str, base: str | None) -> Score:
    score = measured[name]
    if base is None or not score.bytes_per_token or not measured[base].bytes_per_token:
        return score
    return replace(score, gain=score.bytes_per_token / (measured[base].bytes_per_token or 1) - 1)
