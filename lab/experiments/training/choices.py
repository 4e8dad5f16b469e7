"""Tasks made from FLORES: find the right one of four texts by its likelihood. They need no hub and no prompt format.

- `continuation-LANGUAGE`: the second half of a sentence, among second halves of three other sentences.
- `from-LANGUAGE`, `to-LANGUAGE`: the translation of a sentence from or to the target language, among three others.

The right text is the one whose bits fall most by the text before it, per byte: a text that is likely anywhere does not
win. Distractors are those of the other sentences that are next in length, so that length does not tell.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

CHOICES = 4
Bits = Callable[..., np.ndarray]
"""`bits(texts, before=None)`: the bits of each text, after another one."""


def solved(bits: Bits, scored: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Which items are solved, by task: a digit for each item, 1 if it is solved."""
    lines = {name.removesuffix("_flores"): texts for name, texts in scored.items() if name.endswith("_flores")}
    kept = "en"
    found = {}
    for language, sentences in lines.items():
        halves = [split(sentence) for sentence in sentences]
        found[f"continuation-{language}"] = solve(bits, [a for a, _ in halves], [b for _, b in halves])
        if language != kept and kept in lines:
            found[f"to-{language}"] = solve(bits, [f"{x}\n" for x in lines[kept]], sentences)
            found[f"from-{language}"] = solve(bits, [f"{x}\n" for x in sentences], lines[kept])
    return found


def split(sentence: str) -> tuple[str, str]:
    """The halves of a sentence; the second begins with the space between them, if there is one.

    >>> split("A sentence of six short words")
    ('A sentence of', ' six short words')
    """
    places = [place for place, character in enumerate(sentence) if character == " " and place]
    at = min(places, key=lambda place: abs(place - len(sentence) // 2), default=max(1, len(sentence) // 2))
    return sentence[:at], sentence[at:]


def solve(bits: Bits, before: Sequence[str], texts: Sequence[str]) -> str:
    """For each item, whether the right text gains most from the one before it."""
    candidates = distractors(texts)
    alone = bits(list(texts))
    after = bits(
        [texts[j] for row in candidates for j in row], [before[i] for i, row in enumerate(candidates) for _ in row]
    ).reshape(candidates.shape)
    sizes = np.array([len(text.encode()) for text in texts])
    gains = (alone[candidates] - after) / sizes[candidates]
    gains[~np.isfinite(gains).all(axis=1)] = -np.arange(CHOICES)[::-1]  # a broken model solves nothing
    return "".join(str(int(best == 0)) for best in gains.argmax(axis=1))


def distractors(texts: Sequence[str]) -> np.ndarray:
    """For each text its own place, then those of the others that are next in length."""
    sizes = np.array([len(text.encode()) for text in texts])
    order = np.lexsort((np.arange(len(texts)), sizes))
    rank = np.empty(len(texts), int)
    rank[order] = np.arange(len(texts))
    rows = []
    for place in range(len(texts)):
        start = min(max(0, rank[place] - CHOICES // 2), len(texts) - CHOICES)
        near = [int(other) for other in order[start : start + CHOICES] if other != place]
        rows.append([place, *near[: CHOICES - 1]])
    return np.array(rows)
