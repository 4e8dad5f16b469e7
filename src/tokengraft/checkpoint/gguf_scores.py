"""Scores of new pieces in a GGUF file: llama.cpp merges SentencePiece types by the score of the product."""

from collections.abc import Mapping

import numpy as np

from tokengraft.checkpoint.gguf_vocabulary import GgufVocabulary, normal_scores
from tokengraft.errors import CheckpointError, UnsupportedTokenizerError
from tokengraft.frozen import FrozenDict
from tokengraft.tokenizer.sentencepiece import all_splits, next_below
from tokengraft.tokenizer.tokenizer import Tokenizer

_STEP = 7919
"""Pairs of tokens are compared at this distance: a prime, so that all tokens have a neighbour."""


def new_scores(vocabulary: GgufVocabulary, base: Tokenizer, new: Tokenizer) -> dict[str, float]:
    """The scores of the new pieces: those of the new `tokenizer.model`, or by the order of the new merges.

    Raises:
        CheckpointError: The file and the model have different scores for a piece, or no scores give that order.
    """
    known = normal_scores(vocabulary, base.ids)
    if new.piece_model is None:
        return _by_merges(new, {piece: score for piece, score in known.items() if piece in new.ids})
    scores = new.piece_model.normal
    other = next(
        (piece for piece in scores if piece in known and np.float32(known[piece]) != np.float32(scores[piece])), None
    )
    if other is not None:
        raise CheckpointError(
            f"the piece {other!r} has the score {known[other]} in the GGUF file and {scores[other]} in the new "
            f"`{new.piece_file}`: they are of different models",
            hint="pass the GGUF file that was converted from the base of the new tokenizer",
        )
    return {piece: score for piece, score in scores.items() if piece not in known}


def _by_merges(new: Tokenizer, known: Mapping[str, float]) -> dict[str, float]:
    """Scores for new products between those of the merges before and after them; for new characters, below all."""
    scores, above = dict(known), max(known.values(), default=0.0)
    for left, right in new.merge_strings():
        score = scores.get(left + right)
        if score is None:
            score = next_below(above)
        elif score > above:
            raise UnsupportedTokenizerError(
                f"the new tokenizer merges {left + right!r}, which scores {score}, after a token that scores {above}; "
                "llama.cpp merges by score",
                hint="pass a new tokenizer with a `tokenizer.model`, which is extended by that rule",
            )
        scores[left + right] = above = score
    lowest = next_below(min(scores.values(), default=0.0))
    others = {*new.ids} - {token.content for token in new.added}
    scores |= dict.fromkeys(others.difference(scores), lowest)
    return {piece: score for piece, score in scores.items() if piece not in known}


def require_same_rule(new: Tokenizer, scores: Mapping[str, float]) -> None:
    """Refuses scores under which text is split in another way than by the merges of the new tokenizer.

    Compared are all tokens, and every token followed by another.

    Raises:
        CheckpointError: With the first text that differs.
    """
    ids = new.ids
    normal = {piece: score for piece, score in scores.items() if piece in ids}
    merges = tuple((ids[left], ids[right]) for left, right in all_splits(normal, ids))
    by_score = Tokenizer(FrozenDict(ids), merges, new.rest).bpe
    pieces = sorted(normal)
    for place, piece in enumerate(pieces):
        for text in (piece, piece + pieces[(place + _STEP) % len(pieces)]):
            if new.bpe.encode(text) != by_score.encode(text):
                raise CheckpointError(
                    f"llama.cpp, which merges by score, would split {text!r} in another way than the new tokenizer",
                    hint="pass a new tokenizer with a `tokenizer.model`",
                )
