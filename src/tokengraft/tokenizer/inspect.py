"""`inspect`: sizes of a tokenizer, the layout of its ids, and anything unusual about it. Changes nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from tokengraft import _core
from tokengraft.errors import require_type
from tokengraft.representation import shown
from tokengraft.tokenizer.content import Token
from tokengraft.tokenizer.kind import Algorithm, Kind, pipeline_parts, token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

EXAMPLES = 8
_NEIGHBOURS = ("", "a", " ", "\n", "1", ".", " a")
"""Text beside which a token may be a pretoken although it is none when alone."""
Engine = Literal["hand-written scanner", "automata", "tokenizers crate"]


class IdRange(NamedTuple):
    """A run of ids in the same use, both ends included."""

    first: int
    last: int
    use: Literal["learned", "added", "unused"]


@shown
@dataclass(frozen=True)
class Inspection:
    """The findings of `inspect`. Counts are of tokens unless their name says otherwise."""

    kind: Kind
    algorithm: Algorithm
    normalizer: tuple[str, ...]
    """The steps of the normalizer, by name."""
    pre_tokenizer: tuple[str, ...]
    """The steps of the pre-tokenizer, by name."""
    engine: Engine
    """What splits text into pretokens when it is counted. All give the same pretokens. The first two count about ten
    times as fast as the last, and cut long documents into parts."""
    ignore_merges: bool
    byte_fallback: bool
    tokens: int
    learned: int
    added: int
    special: int
    atomic: int
    merges: int
    rows: int
    """Rows an embedding table needs: the highest id plus one."""
    id_layout: tuple[IdRange, ...]
    holes: int
    """Ids below the highest that no token has."""
    ignored_ids: tuple[tuple[str, int, int], ...]
    """Added tokens whose listed id loaders ignore: (token, listed id, the id it gets)."""
    missing_bytes: int
    """Bytes of UTF-8 text that no token spells: text with them is dropped or becomes the unknown token."""
    shared_bytes: int
    """Tokens that stand for the same bytes as another."""
    unreachable: int
    """Learned tokens that merges never make (the Self-Tokenization Test)."""
    unreachable_examples: tuple[str, ...]
    usable_whole: int
    """Unreachable tokens whose own text is one pretoken, so that merge skipping produces them."""
    not_utf8: int
    """Tokens whose bytes are not valid UTF-8."""
    longest: tuple[str, ...]
    """The learned tokens with the most bytes."""
    files: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The findings as JSON-ready data."""
        return asdict(self) | {"id_layout": [run._asdict() for run in self.id_layout]}


def inspect(tokenizer: Tokenizer) -> Inspection:
    """A summary of a tokenizer: what to know before editing it.

    Examples:
        >>> facts = tg.inspect(tg.load("model"))
        >>> facts.kind, facts.merges, facts.unreachable, facts.rows
        ('byte-level', 139, 0, 397)
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    added, core = tokenizer.added, tokenizer.core_vocabulary
    added_ids = [token.id for token in added]
    (learned, atomic, not_utf8, shared_bytes), longest = tokenizer.core_model.summary(added_ids, examples=EXAMPLES)
    layout = id_layout(tokenizer.core_model.runs(added_ids))
    failing = [*tokens_of(tokenizer, tokenizer.unreachable)]
    return Inspection(
        kind=tokenizer.kind,
        algorithm=tokenizer.algorithm,
        normalizer=_step_names(tokenizer.document.get("normalizer")),
        pre_tokenizer=_step_names(tokenizer.document.get("pre_tokenizer")),
        engine=_core.Pipeline.engine(tokenizer.skeleton, tokenizer.kind == "byte-level"),
        ignore_merges=tokenizer.ignore_merges,
        byte_fallback=tokenizer.byte_fallback,
        tokens=learned + len(added),
        learned=learned,
        added=len(added),
        special=sum(token.special for token in added),
        atomic=atomic,
        merges=core.n_merges,
        rows=tokenizer.n_rows,
        id_layout=layout,
        holes=sum(run.last - run.first + 1 for run in layout if run.use == "unused"),
        ignored_ids=tuple((t.content, t.listed_id, t.id) for t in added if t.id != t.listed_id),
        missing_bytes=len(tokenizer.missing_bytes),
        shared_bytes=shared_bytes,
        unreachable=len(failing),
        unreachable_examples=tuple(token.string for token in failing[:EXAMPLES]),
        usable_whole=sum(is_whole_pretoken(tokenizer, token) for token in failing),
        not_utf8=not_utf8,
        longest=tuple(token.string for token in tokens_of(tokenizer, longest)),
        files=tuple(sorted(tokenizer.files)),
    )


def tokens_of(tokenizer: Tokenizer, ids: Iterable[int]) -> Iterator[Token]:
    """The tokens of the vocabulary with these ids."""
    for token_id in ids:
        string = tokenizer.core_vocabulary.string_of(token_id) or ""
        yield Token(token_id, string, token_bytes(string, tokenizer.kind))


def is_whole_pretoken(tokenizer: Tokenizer, token: Token) -> bool:
    """Whether merge skipping can produce a token: its text, alone or beside other text, is a whole pretoken."""
    try:
        text = token.bytes.decode()
    except UnicodeDecodeError:
        return False
    places = (before + text + after for before in _NEIGHBOURS for after in _NEIGHBOURS)
    return tokenizer.ignore_merges and any(token.string in tokenizer.pretokenize(place) for place in places)


def id_layout(runs: Iterable[tuple[int, int, bool]]) -> tuple[IdRange, ...]:
    """Runs of ids that have tokens, with those between them that have none.

    >>> [tuple(run) for run in id_layout([(0, 1, False), (5, 5, True)])]
    [(0, 1, 'learned'), (2, 4, 'unused'), (5, 5, 'added')]
    """
    layout, next_id = list[IdRange](), 0
    for first, last, is_added in runs:
        if first > next_id:
            layout.append(IdRange(next_id, first - 1, "unused"))
        layout.append(IdRange(first, last, "added" if is_added else "learned"))
        next_id = last + 1
    return tuple(layout)


def _step_names(step: Mapping[str, Any] | None) -> tuple[str, ...]:
    return tuple(part["type"] for part in pipeline_parts(step))


def spelling_warning(tokenizer: Tokenizer, *, is_base: bool = False) -> str | None:
    """A message about the text that a vocabulary cannot encode, or that of its base; None if it encodes all text."""
    if tokenizer.spells_everything or tokenizer.algorithm != "BPE":  # the other models always have unknown text
        return None
    unknown = tokenizer.model.get("unk_token")
    becomes = "is dropped" if unknown is None else f"becomes `{unknown}`"
    missing = tokenizer.missing_bytes
    if not missing:
        return f"most characters have no token: text with them {becomes}"
    base = ", as in the base" if is_base else ""
    listed = ", ".join(f"0x{byte:02X}" for byte in missing[:8]) + ", …" * (len(missing) > 8)
    return f"{len(missing)} of the 256 bytes have no token ({listed}){base}: text with them {becomes}"
