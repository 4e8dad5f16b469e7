"""Scores of new pieces in a GGUF file: llama.cpp merges SentencePiece types by the score of the product."""

import math
from collections.abc import Mapping

import numpy as np

from tokengraft.checkpoint.gguf_vocabulary import GgufVocabulary, normal_scores
from tokengraft.errors import CheckpointError
from tokengraft.frozen import FrozenDict
from tokengraft.tokenizer.sentencepiece import all_splits, next_below
from tokengraft.tokenizer.tokenizer import Tokenizer

_STEP = 7919
"""Pairs of tokens are compared at this distance: a prime, so that all tokens have a neighbour."""


def new_scores(vocabulary: GgufVocabulary, base: Tokenizer, new: Tokenizer) -> dict[str, float]:
    """The scores of all pieces that merge: those of the new `tokenizer.model`, or by the order of the new merges.

    Raises:
        CheckpointError: The file and the new model are of different models.
    """
    known = normal_scores(vocabulary, base.ids)
    if new.piece_model is None:
        return _by_merges(new, {piece: score for piece, score in known.items() if piece in new.ids})
    scores = new.piece_model.normal
    # A piece that was pruned and learned again scores lower than before.
    other = next((piece for piece in scores if np.float32(scores[piece]) > np.float32(known.get(piece, np.inf))), None)
    if other is not None:
        raise CheckpointError(
            f"the piece {other!r} has the score {known[other]} in the GGUF file and {scores[other]} in the new "
            f"`{new.piece_file}`: they are of different models",
            hint="pass the GGUF file that was converted from the base of the new tokenizer",
        )
    return scores


def _by_merges(new: Tokenizer, known: Mapping[str, float]) -> dict[str, float]:
    """Scores in the order of the merges, those of the file where they are in that order; characters are below all."""
    scores: dict[str, float] = {}
    above = max(known.values(), default=0.0)
    for left, right in new.merge_strings():
        product = left + right
        if product not in scores:
            score = known.get(product, math.inf)
            above = scores[product] = score if score <= above else next_below(above)
    others = {*new.ids} - {token.content for token in new.added} - {*scores}
    lowest = next_below(min([*scores.values(), *known.values()], default=0.0))
    return scores | {piece: known.get(piece, lowest) for piece in others}


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
