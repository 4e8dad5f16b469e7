"""What the files of a tokenizer say: the fields of `Tokenizer`, and the facts that follow from them alone."""

import copyreg
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tokengraft import _core
from tokengraft.output.json_file import JsonStyle
from tokengraft.representation import FrozenDict, quoted, shown
from tokengraft.tokenizer.added import FLAGS, AddedToken, Entry, added_tokens
from tokengraft.tokenizer.kind import (
    BYTES_OF_TEXT,
    CHARACTER_OF,
    Algorithm,
    Kind,
    algorithm_of,
    byte_token,
    characters_with,
    detect_kind,
)
from tokengraft.tokenizer.piece_model import PieceModel, piece_file
from tokengraft.tokenizer.rank_file import RankFile, rank_file

if TYPE_CHECKING:
    from tokengraft.tokenizer.tokenizer import Tokenizer

copyreg.pickle(_core.Vocabulary, lambda core: (_core.Vocabulary, (core.vocab(), core.merges())))


@shown
class Token(NamedTuple):
    """A token. Its string identifies it: two tokens may stand for the same bytes (``A`` and ``<0x41>``)."""

    id: int
    string: str
    bytes: bytes

    def _shown(self) -> dict[str, Any]:
        return {"id": self.id, "text": quoted(self.bytes.decode(errors="backslashreplace"))}


@shown
@dataclass(frozen=True)
class MergeStructure:
    """Which merge makes each token.

    A token may be the product of several merges; ``splits`` has the one that fires when the token encodes itself.
    Added tokens are split out of the text before BPE, so the Self-Tokenization Test does not include them. If merges
    make one as well, as with Gemma's runs of spaces, its split is included.
    """

    splits: Mapping[int, tuple[int, int]]
    """Every token that merges make, with the ids of its two parts."""
    atomic: frozenset[int]
    """Starting symbols: single characters, and ``<0xNN>`` where the model has byte fallback."""
    unreachable: tuple[int, ...]
    """Learned tokens whose own string does not encode to them by merges (the Self-Tokenization Test), ascending."""


@dataclass(frozen=True)
class TokenizerContent:
    """The content of the files of a tokenizer."""

    core_vocabulary: _core.Vocabulary = field(compare=False)
    """The vocabulary and the merges in the core. ``vocab`` and ``merges`` are Python values of them."""
    rest: str
    """Everything else of `tokenizer.json`, as JSON text: the file with `model.vocab` and `model.merges` emptied."""
    files: Mapping[str, bytes] = field(default_factory=FrozenDict)
    """The other tokenizer files of the folder, by relative path."""
    style: JsonStyle = field(default_factory=JsonStyle)
    """The layout of the file (indentation and the like), which is kept when it is written."""
    merges_as_text: bool = False
    """Whether the file lists merges as ``"a b"`` rather than as pairs."""
    main: str = "tokenizer.json"
    """The main file: `tokenizer.json`, or the name of a SentencePiece model or rank file among the files. If it is one
    of those, the other fields were derived from it, and no `tokenizer.json` is written."""
    scores: Mapping[str, float] = field(default_factory=FrozenDict)
    """Unigram: the score of every token of the vocabulary."""
    freed: Mapping[str, int] = field(default_factory=FrozenDict, compare=False)
    """Removed tokens, with the ids they had. One that is learned again gets its old id. Not written to files."""
    unpruned: "Tokenizer | None" = field(default=None, compare=False)
    """Unigram and WordPiece: the tokenizer before tokens were removed, if no new ones were added since. Their
    vocabularies are lists, so the kept tokens were renumbered. As many new tokens give them their ids back."""
    starts: Mapping[str, tuple[str, ...]] = field(default_factory=FrozenDict, compare=False)
    """Given tokens, with the tokens whose rows theirs begin as the mean of; none for the mean of all. Not written."""
    original: bytes | None = field(default=None, init=False, compare=False)
    """The bytes of the `tokenizer.json` that it was read from; None if it was changed, copied or made in memory.

    A file that was edited by hand has no layout that `style` could describe. Unchanged, it is written as it was.
    """

    @cached_property
    def vocab(self) -> Mapping[str, int]:
        """The model's vocabulary, in the order of the file. Added tokens may or may not be in it."""
        return FrozenDict(self.core_vocabulary.vocab())

    @cached_property
    def merges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of ids. The position in the list is the rank."""
        return self.core_vocabulary.merges()

    def merge_strings(self) -> list[tuple[str, str]]:
        """The merges as pairs of strings."""
        return self.core_vocabulary.merge_strings()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenizerContent) and self._content() == other._content()

    def _content(self) -> tuple[Any, ...]:
        return self.vocab, self.merges, *(getattr(self, each.name) for each in fields(self) if each.compare)

    def __len__(self) -> int:
        """The number of tokens, added ones included. An embedding needs ``n_rows``, which counts holes too."""
        return len(self.core_vocabulary) + len(self.unlisted)

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}  # nothing computed

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """``rest`` as data. Do not change it."""
        return FrozenDict(json.loads(self.rest))

    @property
    def model(self) -> Mapping[str, Any]:
        """The model's settings: `unk_token`, `fuse_unk` and the like."""
        model: Mapping[str, Any] = self.document["model"]
        return model

    @cached_property
    def kind(self) -> Kind:
        """How the vocabulary spells bytes, detected from the pipeline."""
        return detect_kind(self.document)

    @property
    def algorithm(self) -> Algorithm:
        """How the model splits pretokens."""
        algorithm: Algorithm = algorithm_of(self.model)
        return algorithm

    @property
    def ignore_merges(self) -> bool:
        """Whether a pretoken that is a token is encoded as that token without using merges (merge skipping)."""
        return bool(self.model.get("ignore_merges"))

    @property
    def byte_fallback(self) -> bool:
        """Whether a character outside the vocabulary becomes ``<0xNN>`` tokens."""
        return bool(self.model.get("byte_fallback"))

    @property
    def unknown(self) -> str | None:
        """The token that unknown text becomes; None if there is none."""
        if self.algorithm == "Unigram":
            unk_id = self.model.get("unk_id")
            return None if unk_id is None else self.core_vocabulary.string_of(unk_id)
        unknown: str | None = self.model.get("unk_token")
        return unknown

    @cached_property
    def added(self) -> tuple[AddedToken, ...]:
        """The added tokens by ascending id, with the ids and flags that transformers gives them."""
        return added_tokens(self.core_vocabulary, self.document.get("added_tokens") or (), self.files)

    def added_entries(self) -> list[Entry]:
        """The added tokens as `tokenizer.json` writes them, those that only other files name at the end."""
        tokens = {token.content: token for token in self.added}
        listed = [entry["content"] for entry in self.document.get("added_tokens") or ()]
        contents = dict.fromkeys(content for content in (*listed, *tokens) if content)
        return [
            {"id": tokens[content].id, "content": content} | {flag: getattr(tokens[content], flag) for flag in FLAGS}
            for content in contents
        ]

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of every token, added ones included."""
        return FrozenDict({**self.vocab, **{t: i for i, t in self.unlisted}}) if self.unlisted else self.vocab

    @cached_property
    def strings(self) -> Mapping[int, str]:
        """The string of every token by its id, added tokens included: the inverse of ``ids``."""
        return FrozenDict({token_id: string for string, token_id in self.ids.items()})

    @cached_property
    def unlisted(self) -> list[tuple[int, str]]:
        """Id and text of the added tokens that are not in the vocabulary."""
        core = self.core_vocabulary
        return [(token.id, token.content) for token in self.added if core.id_of(token.content) is None]

    @property
    def n_rows(self) -> int:
        """Rows that an embedding table needs: the highest id plus one, holes included."""
        highest = self.core_vocabulary.highest_id
        return max(-1 if highest is None else highest, *(token.id for token in self.added), -1) + 1

    @cached_property
    def missing_bytes(self) -> tuple[int, ...]:
        """The bytes that lack a token and that some text has, which is lost: for byte-level kinds and byte fallback."""
        id_of = self.core_vocabulary.id_of
        if self.kind == "byte-level":
            return tuple(byte for byte in BYTES_OF_TEXT if id_of(CHARACTER_OF[byte]) is None)
        missing = [byte for byte in BYTES_OF_TEXT if self.byte_fallback and id_of(byte_token(byte)) is None]
        # A character that is a token needs no byte tokens.
        return tuple(byte for byte in missing if any(id_of(character) is None for character in characters_with(byte)))

    @property
    def piece_file(self) -> str | None:
        """The name of the SentencePiece model among the files, if there is one."""
        return piece_file(self.files)

    @cached_property
    def piece_model(self) -> PieceModel | None:
        """The SentencePiece model among the files, if there is one."""
        name = self.piece_file
        return PieceModel.read(self.files[name], name) if name else None

    @cached_property
    def rank_file(self) -> str | None:
        """The name of the rank file (tiktoken or tekken) among the files, if there is one."""
        return rank_file(self.files)

    @cached_property
    def ranks(self) -> RankFile | None:
        """The rank file among the files, if there is one."""
        name = self.rank_file
        return RankFile.read(self.files[name], name) if name else None

    @property
    def merge_priorities(self) -> Mapping[str, float] | None:
        """The tokens that merge by what the product is, whichever its parts are, each with a number: lowest first.

        A SentencePiece model and a rank file say so. None without one of these: only the listed pairs merge.
        """
        if self.piece_model:
            return {string: -score for string, score in self.piece_model.normal.items()}
        return self.ranks.ids if self.ranks else None

    def model_lists(self) -> dict[str, Any]:
        """Vocabulary, and merges or scores, as the model of a `tokenizer.json` lists them."""
        if self.algorithm == "Unigram":
            return {"vocab": [[token, self.scores[token]] for token in sorted(self.vocab, key=self.vocab.__getitem__)]}
        if self.algorithm == "WordPiece":
            return {"vocab": dict(self.vocab)}
        return {"vocab": dict(self.vocab), "merges": self.merge_strings()}
