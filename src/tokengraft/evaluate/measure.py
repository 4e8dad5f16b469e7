"""`evaluate`: measures tokenizers on texts, with the measures of the paper and a few more."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokengraft.arguments import checked
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError
from tokengraft.evaluate.documents import Comparison as DocumentComparison
from tokengraft.evaluate.documents import TextSize, TokenCounts
from tokengraft.evaluate.evaluation import Evaluation, Score
from tokengraft.evaluate.metrics import LONGEST_DIFFERENCE, levenshtein, renyi_efficiency, share, used_share
from tokengraft.evaluate.segments import Text, batches, lost_bytes, stream_text, text_warnings
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
    opened = {name: stream_text(name, source, read_options) for name, source in texts.items()}
    if read_options and all(isinstance(text, PretokenCounts) for text in opened.values()):
        raise OptionError(
            "options for reading text were given, but all texts are counts", hint="leave them out, or pass text"
        )
    scores, unmeasured = [], dict[tuple[str, str], int]()
    for name, text in opened.items():
        if isinstance(text, PretokenCounts):
            measured = {key: _from_counts(key, tok, name, text) for key, tok in loaded.items()}
        else:
            measured, without = _from_text(loaded, name, text.documents, chosen)
            unmeasured |= {(key, name): n for key, n in without.items()}
        scores += [_against(measured, key, chosen) for key in loaded]
    warnings = tuple(warning for name, text in opened.items() for warning in text_warnings(name, text))
    ordered = sorted(scores, key=lambda score: [*loaded].index(score.tokenizer))
    compares = chosen is not None and len(loaded) > 1
    return Evaluation(tuple(ordered), chosen, (*_notes(ordered, unmeasured, compares=compares),), warnings)


def _notes(scores: Iterable[Score], unmeasured: Mapping[tuple[str, str], int], *, compares: bool) -> Iterator[str]:
    """What some measures leave out."""
    for score in scores:
        if score.dropped_bytes:
            yield (
                f"{score.tokenizer} drops {score.dropped_bytes:,} of the {score.bytes:,} bytes of {score.text} or "
                "replaces them by its unknown token: measures by bytes or characters do not include them"
            )
    if compares and levenshtein() is None:
        yield "rapidfuzz is not installed: edit distances are not computed"
        return
    for score in scores:
        if n := unmeasured.get((score.tokenizer, score.text)):
            yield (
                f"{score.tokenizer}: {n:,} of the {score.documents:,} documents of {score.text} are left out of the "
                f"edit distances, because they differ over more than {LONGEST_DIFFERENCE:,} tokens"
            )


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


def _from_text(
    loaded: Mapping[str, Tokenizer], name: str, documents: Iterable[str], base: str | None
) -> tuple[dict[str, Score], dict[str, int]]:
    """The scores by tokenizer, and of how many documents the edit distance is unknown."""
    total, counts = TextSize(), {key: TokenCounts(tok) for key, tok in loaded.items()}
    compared = {key: DocumentComparison(tok, loaded[base]) for key, tok in loaded.items()} if base is not None else {}
    for batch in batches(documents):
        total.add(batch)
        segments = {key: found.add(batch) for key, found in counts.items()}
        for key, comparison in compared.items():
            comparison.add(segments[key], segments[base or key])
    size = _TextSize(name, total.documents, total.n_bytes, total.n_characters, total.n_words)
    scores = {key: _text_score(key, size, found) for key, found in counts.items()}
    for key, comparison in compared.items():
        scores[key] = _with_documents(scores[key], comparison, counts[key].counted)
    return scores, {key: comparison.unmeasured for key, comparison in compared.items() if comparison.unmeasured}


def _text_score(name: str, size: _TextSize, found: TokenCounts) -> Score:
    score = _score(name, found.tokenizer, size, found.counted, found.lost, found.n_pretokens)
    if not found.tokenizer.ignore_merges:
        return score
    return _with_merges_alone(score, size, found.n_by_merges, found.lost_by_merges)


def _with_documents(score: Score, comparison: DocumentComparison, counted: Mapping[int, int]) -> Score:
    """The score with the measures that compare each document with the base."""
    has_distances = levenshtein() is not None
    return replace(
        score,
        win_rate=comparison.win_rate,
        exact_match=comparison.exact_match,
        edit_distance=comparison.edit_distance if has_distances else None,
        worst_edit_distance=comparison.worst_edit_distance if has_distances else None,
        added_used=used_share(counted, comparison.added),
    )


def _against(measured: Mapping[str, Score], name: str, base: str | None) -> Score:
    score = measured[name]
    if base is None or not score.bytes_per_token or not measured[base].bytes_per_token:
        return score
    return replace(score, gain=score.bytes_per_token / (measured[base].bytes_per_token or 1) - 1)
