"""`examples`: for tokens, a place in the documents where each occurs, with the text around it."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from tokengraft.evaluate.segments import Segmenter, batches
from tokengraft.report.pack import varints
from tokengraft.tokenizer.tokenizer import Tokenizer

AROUND = 48
"""Bytes of text before and after a token."""
MOST_BYTES = 600_000
"""Bytes of text with examples in a page, for each tokenizer. Tokens that are left without one are counted."""

LONGEST = 1 << 20
"""Characters. Longer documents have no examples: the place of every token would need gigabytes."""


class Examples(NamedTuple):
    """Examples of tokens."""

    snippets: tuple[str, ...]
    places: Mapping[int, tuple[int, int, int]]
    """By id: the number of the snippet, and where the token begins and ends in it, in UTF-16 as JavaScript counts."""

    def columns(self, order: Iterable[int]) -> bytes:
        """The places as numbers for tokens in some order: 0 without an example; else 1 + snippet, start, end."""
        found = (self.places.get(token_id) for token_id in order)
        return varints(value for place in found for value in ((place[0] + 1, *place[1:]) if place else (0,)))


def examples(tokenizer: Tokenizer, wanted: Iterable[int], texts: Iterable[Iterable[str]]) -> Examples:
    """An example for each of some tokens that occurs in the documents, until the snippets have `MOST_BYTES`.

    Args:
        tokenizer: The tokenizer.
        wanted: Ids of tokens.
        texts: The documents of each text.
    """
    missing, data_of = set(wanted), {token.id: token.bytes for token in tokenizer.tokens}
    snippets: list[str] = []
    places: dict[int, tuple[int, int, int]] = {}
    size = 0
    for document, ids in _in_turn(tokenizer, texts):
        if missing.isdisjoint(ids):
            continue
        data, window = document.encode(), (0, 0)
        for token_id, start, end in _spans(ids, data, data_of):
            if token_id not in missing:
                continue
            if end + AROUND // 3 > window[1] and (end > window[1] or window[1] < len(data)):
                window = _window(data, start, end)
                snippets.append(data[slice(*window)].decode(errors="replace"))
                size += window[1] - window[0]
            missing.discard(token_id)
            left, inside = data[window[0] : start], data[start:end]
            place = _length(left)
            places[token_id] = (len(snippets) - 1, place, place + _length(inside))
        if size > MOST_BYTES or not missing:
            break
    return Examples(tuple(snippets), places)


def _in_turn(tokenizer: Tokenizer, texts: Iterable[Iterable[str]]) -> Iterator[tuple[str, list[int]]]:
    """The documents with their tokens, one of each text in turn: no text takes all the room."""
    segmenter = Segmenter(tokenizer)
    for row in zip_longest(*(_encoded(segmenter, documents) for documents in texts)):
        yield from (pair for pair in row if pair is not None)


def _encoded(segmenter: Segmenter, documents: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    short = (document for document in documents if len(document) <= LONGEST)
    for batch in batches(short):
        segments = segmenter.segment(batch)
        for place, document in enumerate(batch):
            yield document, segments.document(place).tolist()


def _spans(ids: Iterable[int], data: bytes, data_of: Mapping[int, bytes]) -> Iterator[tuple[int, int, int]]:
    """The tokens of a document with the bytes where they begin and end; none if they do not spell the document."""
    pieces = [(token_id, data_of[token_id]) for token_id in ids]
    spelled = b"".join(piece for _, piece in pieces)
    if spelled not in (data, b" " + data):  # SentencePiece writes a space before the text
        return
    at = len(data) - len(spelled)
    for token_id, piece in pieces:
        yield token_id, max(at, 0), at + len(piece)
        at += len(piece)


def _window(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The text around some bytes, without parts of characters at its ends."""
    left, right = max(start - AROUND, 0), min(end + AROUND, len(data))
    while left < start and data[left] & 0xC0 == 0x80:
        left += 1
    while right > end and right < len(data) and data[right] & 0xC0 == 0x80:
        right -= 1
    return left, right


def _length(data: bytes) -> int:
    return len(data.decode(errors="ignore").encode("utf-16-le")) // 2
