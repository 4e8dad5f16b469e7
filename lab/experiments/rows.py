"""Initialisers that the experiments compare and the package does not offer, as functions for `init=`."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

import tokengraft as tg

MIN_TYPICAL = 32
"""A script with fewer kept tokens than this has no typical length of its own."""
STEEPNESS = 2.0
"""The weight of a piece is e^2 times that of its neighbour, for `weighted`."""
NewTokens = TableInfo = Any
"""What a function gets: `docs/initialisers.md` says what they have."""
Rows = np.ndarray
Initialiser = Callable[[NewTokens, TableInfo], Rows]


class Change:
    """The change of a vocabulary."""

    def __init__(self, old: tg.Tokenizer, new: tg.Tokenizer) -> None:
        self.old, self.new = old, new

    def init(self, name: str) -> str | Initialiser:
        """What `init=` takes for an initialiser: a name of the package, or a function."""
        return partial(fvt_script_norm, self) if name == "fvt-script-norm" else SIMPLE.get(name, name)

    @cached_property
    def old_scripts(self) -> list[str | None]:
        """The script of every old token by id; None for those that are not typical."""
        return scripts(self.old)

    @cached_property
    def new_scripts(self) -> list[str | None]:
        """The same for the new tokenizer."""
        return scripts(self.new)


def init_for(model: Path, arm: Path, name: str) -> str | Initialiser:
    """What `init=` takes for an initialiser of an arm."""
    return Change(tg.load(model), tg.load(arm)).init(name)


def scripts(tokenizer: tg.Tokenizer) -> list[str | None]:
    """The script of each token by id. None for added tokens and single bytes, whose rows are not typical."""
    added = {token.id for token in tokenizer.added}
    typical = [token for token in tokenizer.tokens if token.id not in added and len(token.bytes) > 1]
    found: list[str | None] = [None] * tokenizer.n_rows
    for token in typical:
        found[token.id] = script_of(token.bytes.decode(errors="ignore"))
    return found


def script_of(text: str) -> str:
    """The script of most letters of a text, by the first word of their Unicode names.

    The committed results were made with Unicode's script property instead, which Python does not have.

    >>> script_of(" cat"), script_of("猫が"), script_of(" 12")
    ('LATIN', 'CJK', 'none')
    """
    names = [unicodedata.name(letter, " ").split(" ")[0] for letter in text if letter.isalpha()]
    return Counter(names).most_common(1)[0][0] if names else "none"


def fvt(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces, as the package's `fvt`."""
    return stacked([token.pieces.mean(axis=0) if len(token.pieces) else info.mean for token in tokens])


def fvt_mean(tokens: NewTokens, info: TableInfo) -> Rows:
    """Half of the mean of each token's pieces and half of the mean row: logits are never above the largest kept one."""
    return (fvt(tokens, info) + info.mean) / 2


def fvt_rare(differences: float, tokens: NewTokens, info: TableInfo) -> Rows:
    """The package's `fvt-rare`, moved by another number of differences between later and earlier ids."""
    return fvt(tokens, info) + np.float32(differences * info.predicts) * info.rarer


def fvt_norm(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces, as long as the median row of the table."""
    return rescaled(fvt(tokens, info), once(info, "median", lambda: np.median(norms(info, info.ids))))


def fvt_script_norm(change: Change, tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces, as long as the median row of the kept tokens of its script.

    Scripts with few kept tokens, and tokens without a script, use the median of kept tokens of all scripts.
    """
    typical = once(info, "typical", lambda: typical_norms(change, info))
    lengths = [typical.get(change.new_scripts[i], typical[None]) for i in tokens.ids]
    return rescaled(fvt(tokens, info), np.array(lengths))


def typical_norms(change: Change, info: TableInfo) -> dict[str | None, float]:
    """The median length of the rows of kept tokens by script; under None, that of all scripts."""
    lengths = norms(info, info.kept)
    names = np.array([change.old_scripts[row] or "" for row in info.kept], dtype=object)
    groups = {name: lengths[names == name] for name in {*names} if name}
    typical = {name: np.median(group) for name, group in groups.items() if len(group) >= MIN_TYPICAL}
    return {None: np.median(lengths[names != ""])} | typical


def weighted(tokens: NewTokens, info: TableInfo) -> Rows:
    """An exponentially weighted mean: the last piece for input, the first for output (AdaptiVocab, 2025)."""
    steepness = STEEPNESS if info.table == "input" else -STEEPNESS
    weights = [np.exp(steepness * np.arange(len(token.pieces))) for token in tokens]
    return stacked(
        [w / w.sum() @ token.pieces if len(w) else info.mean for token, w in zip(tokens, weights, strict=True)]
    )


def first_piece(tokens: NewTokens, info: TableInfo) -> Rows:
    """The row of each token's first piece."""
    return stacked([token.pieces[0] if len(token.pieces) else info.mean for token in tokens])


def last_piece(tokens: NewTokens, info: TableInfo) -> Rows:
    """The row of each token's last piece."""
    return stacked([token.pieces[-1] if len(token.pieces) else info.mean for token in tokens])


def mean_cov(tokens: NewTokens, info: TableInfo) -> Rows:
    """For each token a sample with the mean and the covariance of the table's rows (after Hewitt, 2021)."""
    factor = once(info, "factor", lambda: covariance_root(info))
    return stacked([info.mean + factor @ info.generator(i).standard_normal(info.width) for i in tokens.ids])


def covariance_root(info: TableInfo) -> np.ndarray:
    """A square root of the covariance of the rows. It turns independent noise into noise with that covariance."""
    total = np.zeros((info.width, info.width))
    for block in info.blocks(info.ids):
        apart = block - info.mean.astype(np.float64)
        total += apart.T @ apart
    values, vectors = np.linalg.eigh(total / max(len(info.ids) - 1, 1))
    return vectors * np.sqrt(np.clip(values, 0, None))


def once(info: TableInfo, name: str, compute: Callable[[], Any]) -> Any:
    """A statistic of a table, computed at the first block of new tokens."""
    known = vars(info)
    if name not in known:
        known[name] = compute()
    return known[name]


def norms(info: TableInfo, ids: np.ndarray) -> np.ndarray:
    """The lengths of old rows."""
    return np.concatenate([np.linalg.norm(block.astype(np.float64), axis=1) for block in info.blocks(ids)])


def rescaled(rows: Rows, lengths: float | np.ndarray) -> Rows:
    """Rows with the same directions and the given lengths. A row of zeros stays one.

    >>> rescaled(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32), 1.0)
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    before = np.linalg.norm(rows.astype(np.float64), axis=1)
    factors = np.divide(lengths, before, out=np.ones_like(before), where=before > 0)
    return (rows * factors[:, None]).astype(np.float32)


def stacked(rows: Sequence[np.ndarray]) -> Rows:
    """Rows as one array."""
    return np.array(rows, np.float32)


SIMPLE = {
    "fvt-mean": fvt_mean,
    "fvt-rare-1": partial(fvt_rare, 1),
    "fvt-rare-3": partial(fvt_rare, 3),
    "fvt-norm": fvt_norm,
    "weighted": weighted,
    "first-piece": first_piece,
    "last-piece": last_piece,
    "mean-cov": mean_cov,
}
