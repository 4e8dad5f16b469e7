"""Proof that two forms of a tokenizer agree: the files of one folder, and a tokenizer in another format.

The proof covers every text: the same tokens with the same ids, and for each the same merge that makes it, in the same
order.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError
from tokengraft.formats.vocabulary_files import split_pattern
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.piece_model import CONTROL, UNKNOWN, PieceModel
from tokengraft.tokenizer.rank_file import RankFile, family_encoding, rank_files
from tokengraft.tokenizer.rewrite import VOCAB_TXT
from tokengraft.tokenizer.tokenizer import Tokenizer

_STALE = "one of the two is stale: take it out of a copy of the folder"


def require_agreement(tokenizer: Tokenizer, folder: str) -> None:
    """Refuses a `.model`, `vocab.txt` or rank file that does not say what the `tokenizer.json` beside it says."""
    model = tokenizer.piece_model
    if model and model.is_unigram != (tokenizer.algorithm == "Unigram"):
        raise InvalidTokenizerError(
            f"`{folder}` has a tokenizer.json that is {tokenizer.algorithm}, and a SentencePiece model that is not",
            hint=_STALE,
        )
    if model:
        differences = _unigram_differences if model.is_unigram else _piece_differences
        _require_none(differences(tokenizer, model), tokenizer, tokenizer.piece_file, folder)
    if tokenizer.algorithm == "WordPiece" and VOCAB_TXT in tokenizer.files:
        lines = tokenizer.files[VOCAB_TXT].decode(errors="replace").removesuffix("\n").split("\n")
        for place, line in enumerate(lines):
            token = line.removesuffix("\r")
            if tokenizer.ids.get(token) != place:
                raise InvalidTokenizerError(
                    f"`{VOCAB_TXT}` in `{folder}` has {token!r} on line {place + 1:,}, and `{tokenizer.main}` gives "
                    f"it {tokenizer.ids.get(token, 'no id')}",
                    hint=_STALE,
                )
    if tokenizer.ranks:
        require_same_tokens(tokenizer, tokenizer.ranks, folder)


def require_same_tokens(tokenizer: Tokenizer, ranks: RankFile, folder: str) -> None:
    """Refuses a rank file that does not say what the `tokenizer.json` beside it says."""
    _require_none(_rank_differences(tokenizer, ranks), tokenizer, tokenizer.rank_file, folder)


def require_same_ranks(files: Mapping[str, bytes], folder: str) -> None:
    """Refuses several rank files with different content: only one of them would be read and changed."""
    first, *others = [*rank_files(files)] or [""]
    differing = next((other for other in others if files[other] != files[first]), None)
    if differing is not None:
        raise InvalidTokenizerError(
            f"`{differing}` and `{first}` in `{folder}` differ, and both are rank files",
            hint=f"{_STALE}, or pass the path of the other itself",
        )


def _require_none(differences: Iterator[str], tokenizer: Tokenizer, file: str | None, folder: str) -> None:
    """Refuses two files of a folder that differ, with the first difference."""
    difference = next(differences, None)
    if difference is not None:
        raise InvalidTokenizerError(
            f"`{file}` and `{tokenizer.main}` in `{folder}` differ: {difference}",
            hint=f"{_STALE}, or pass the path of the other itself",
        )


def _unigram_differences(tokenizer: Tokenizer, model: PieceModel) -> Iterator[str]:
    """Pieces and scores that differ. Ids may: some libraries count from another number than the file."""
    scores = tokenizer.scores
    for string, score in model.normal.items():
        # The converters of ALBERT and XLNet subtract 100 from the scores of numbers with a comma.
        allowed = (score, score - 100) if "," in string else (score,)
        if not any(math.isclose(scores.get(string, math.inf), one, rel_tol=1e-6, abs_tol=1e-6) for one in allowed):
            yield f"the piece {string!r} scores {scores.get(string, 'nothing')} in the one and {score} in the other"
    others = {piece.string for piece in model.pieces} | {token.content for token in tokenizer.added}
    # CamemBERT's class lists special tokens of its own in front, and these under another name.
    others |= {f"{piece.string}NOTUSED" for piece in model.pieces if piece.type in (CONTROL, UNKNOWN)}
    for string in scores:
        if string not in others:
            yield f"tokenizer.json has {string!r}, which is no piece of the other"


def _piece_differences(tokenizer: Tokenizer, model: PieceModel) -> Iterator[str]:
    ids = tokenizer.ids
    holes = model.holes
    for token_id, piece in enumerate(model.pieces):
        if token_id not in holes and ids.get(piece.string) != token_id:
            other = ids.get(piece.string, "no id")
            yield f"the piece {piece.string!r} has the id {token_id:,} in the one and {other} in the other"
    scores, before, lowest = model.normal, "", math.inf
    for left, right in tokenizer.merge_strings():
        product = left + right
        if ids[product] >= len(model.pieces):
            yield f"merges of tokenizer.json make {product!r}, which is no piece of the other"
        if scores.get(product, lowest) > lowest:
            yield f"{product!r} scores higher than {before!r}, and tokenizer.json merges it later"
        if product in scores:
            before, lowest = product, scores[product]


def _rank_differences(tokenizer: Tokenizer, ranks: RankFile) -> Iterator[str]:
    added = {token.content for token in tokenizer.added}.difference(ranks.ids)
    learned = {string: token_id for string, token_id in tokenizer.vocab.items() if string not in added}
    if learned != ranks.ids:
        for token, token_id in ranks.ids.items():
            if learned.get(token) != token_id:
                yield f"the token {token!r} has the id {token_id:,} in the one and {learned.get(token)} in the other"
        yield f"tokenizer.json has the token {min(learned.keys() - ranks.ids.keys())!r}, which is not in the other"
    pattern = ranks.pattern or getattr(family_encoding(ranks.sha256), "pattern", None)
    if pattern and split_pattern(tokenizer) != pattern:
        yield "tokenizer.json does not split text by the pattern of the other"
    yield from merge_differences(tokenizer, ranks)


Pair = tuple[str, str]


def merge_differences(tokenizer: Tokenizer, ranks: RankFile) -> Iterator[str]:
    """Where the merges of a tokenizer encode differently from the ranks. Nothing means: the same for every pretoken."""
    listed, wanted = tokenizer.core_vocabulary, ranks.vocabulary({})
    if not listed.n_merges == wanted.n_merges == listed.common_merges(wanted):
        vocab = tokenizer.vocab
        merges = [(vocab[left], vocab[right]) for left, right in wanted.merge_strings()]
        by_rank = replace(tokenizer, core_vocabulary=_core.Vocabulary(dict(vocab), merges), files=FrozenDict())
        yield from split_differences(tokenizer, by_rank)
    if not tokenizer.ignore_merges and (whole := tokenizer.structure.unreachable):
        yield (
            f"merges do not make the token {tokenizer.strings[whole[0]]!r} (one of {len(whole):,}), which rank files "
            "encode to itself"
        )


def split_differences(tokenizer: Tokenizer, other: Tokenizer) -> Iterator[str]:
    """Where two tokenizers with the same ids encode pretokens differently, merge skipping aside.

    A token that encodes to itself is always made by the same pair, and any other is never made by a merge. So two lists
    of merges encode alike if these pairs are the same, in the same order.
    """
    ours, theirs = tokenizer.structure.splits, other.structure.splits
    for token_id, string in sorted(tokenizer.strings.items()):
        one, two = ours.get(token_id), theirs.get(token_id)
        if one != two:
            said = [" + ".join(repr(tokenizer.strings[i]) for i in pair) if pair else "nothing" for pair in (one, two)]
            yield (
                f"{string!r} is made of {said[0]} by the merges of {tokenizer.main}, and of {said[1]} where any two "
                "tokens merge that make a token"
            )
    # The merges that make a token in some text, in order.
    firing, others = {*ours.values()}, {*theirs.values()}
    if [pair for pair in tokenizer.merges if pair in firing] != [pair for pair in other.merges if pair in others]:
        yield f"the merges of {tokenizer.main} are not in the order of the tokens that they make"


def most_in_order(pairs: list[Pair], ranks: Mapping[Pair, int]) -> list[Pair]:
    """As many of the pairs as possible that are in the order of their ranks.

    >>> most_in_order([("c", "d"), ("a", "b"), ("b", "c")], {("a", "b"): 0, ("b", "c"): 1, ("c", "d"): 2})
    [('a', 'b'), ('b', 'c')]
    """
    if all(ranks[a] < ranks[b] for a, b in pairwise(pairs)):
        return pairs
    ends, last, before = list[int](), list[Pair](), dict[Pair, list[Pair]]()
    for pair in pairs:
        place = bisect_left(ends, ranks[pair])
        before[pair] = last[place - 1 : place]
        ends[place : place + 1], last[place : place + 1] = [ranks[pair]], [pair]
    longest, end = list[Pair](), last[-1:]
    while end:
        longest += end
        end = before[end[0]]
    return longest[::-1]
