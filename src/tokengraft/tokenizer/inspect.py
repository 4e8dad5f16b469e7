"""`inspect`: sizes of a tokenizer, the layout of its ids, and anything unusual about it. Changes nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

from tokengraft import _core
from tokengraft.tokenizer.alphabet import Kind
from tokengraft.tokenizer.kind import pipeline_parts
from tokengraft.tokenizer.tokenizer import Tokenizer

EXAMPLES = 8
Engine = Literal["hand-written scanner", "automata", "tokenizers crate"]


class IdRange(NamedTuple):
    """A run of ids in the same use, both ends included."""

    first: int
    last: int
    use: Literal["learned", "added", "unused"]


@dataclass(frozen=True)
class Inspection:
    """The findings of `inspect`. Counts are of tokens unless their name says otherwise."""

    kind: Kind
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
    """Bytes that no token spells: text with them is dropped or becomes the unknown token."""
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
    structure = tokenizer.structure
    added_ids = {token.id for token in tokenizer.added}
    learned = [token for token in tokenizer.tokens if token.id not in added_ids]
    layout = tuple(id_layout((token.id for token in tokenizer.tokens), added_ids))
    sharing = Counter(token.bytes for token in learned)
    failing = set(structure.unreachable)
    unreachable = [token for token in learned if token.id in failing]
    return Inspection(
        kind=tokenizer.kind,
        normalizer=_step_names(tokenizer.document.get("normalizer")),
        pre_tokenizer=_step_names(tokenizer.document.get("pre_tokenizer")),
        engine=_core.Pipeline.engine(tokenizer.skeleton, tokenizer.kind == "byte-level"),
        ignore_merges=tokenizer.ignore_merges,
        byte_fallback=tokenizer.byte_fallback,
        tokens=len(tokenizer.tokens),
        learned=len(learned),
        added=len(tokenizer.added),
        special=sum(token.special for token in tokenizer.added),
        atomic=len(structure.atomic),
        merges=len(tokenizer.merges),
        rows=tokenizer.n_rows,
        id_layout=layout,
        holes=sum(run.last - run.first + 1 for run in layout if run.use == "unused"),
        ignored_ids=tuple((t.content, t.listed_id, t.id) for t in tokenizer.added if t.id != t.listed_id),
        missing_bytes=len(tokenizer.missing_bytes),
        shared_bytes=sum(count for count in sharing.values() if count > 1),
        unreachable=len(unreachable),
        unreachable_examples=tuple(token.string for token in unreachable[:EXAMPLES]),
        usable_whole=sum(tokenizer.is_whole_pretoken(token) for token in unreachable),
        not_utf8=sum(not _is_utf8(token.bytes) for token in learned),
        longest=tuple(t.string for t in sorted(learned, key=lambda t: (-len(t.bytes), t.id))[:EXAMPLES]),
        files=tuple(sorted(tokenizer.files)),
    )


def id_layout(ids: Iterable[int], added: set[int]) -> Iterator[IdRange]:
    """Runs of ids in the same use: ``[0, 1, 5], {5} -> 0-1 learned, 2-4 unused, 5-5 added``."""
    next_id = 0
    for (use, _), run in groupby(enumerate(ids), key=lambda at: (at[1] in added, at[1] - at[0])):
        first, *others = [token_id for _, token_id in run]
        last = others[-1] if others else first
        if first > next_id:
            yield IdRange(next_id, first - 1, "unused")
        yield IdRange(first, last, "added" if use else "learned")
        next_id = last + 1


def _step_names(step: Mapping[str, Any] | None) -> tuple[str, ...]:
    return tuple(part["type"] for part in pipeline_parts(step))


def spelling_warning(tokenizer: Tokenizer) -> str | None:
    """A message about the text that a vocabulary cannot encode; None if it encodes all text."""
    if tokenizer.spells_everything:
        return None
    becomes = "is dropped" if tokenizer.bpe.drops_unknown else f"becomes `{tokenizer.model.get('unk_token')}`"
    missing = tokenizer.missing_bytes
    what = f"{len(missing)} of the 256 bytes" if missing else "most characters"
    return f"{what} have no token: text with them {becomes}"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
