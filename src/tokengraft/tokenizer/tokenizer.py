"""The frozen `Tokenizer`: tokens, merges, added tokens, and the untouched rest of the file.

It stores the content of the files and computes everything else from that. It reads and writes no files:
`tokengraft.formats` does.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from tokengraft import _core
from tokengraft.arguments import checked
from tokengraft.errors import InvalidTokenizerError
from tokengraft.frozen import FrozenDict
from tokengraft.output.json_file import JsonStyle
from tokengraft.representation import notebook_html, shown
from tokengraft.tokenizer.added import AddedToken, added_tokens
from tokengraft.tokenizer.alphabet import CHARACTER_OF, Kind, byte_token
from tokengraft.tokenizer.content_hash import content_hash
from tokengraft.tokenizer.kind import detect_kind
from tokengraft.tokenizer.merge_tree import MergeStructure
from tokengraft.tokenizer.rank_file import RankFile, rank_file
from tokengraft.tokenizer.rewrite import Change, rewrite_document, rewrite_files
from tokengraft.tokenizer.sentencepiece import PieceModel, piece_file
from tokengraft.tokenizer.settings import FLAGS, Entry
from tokengraft.tokenizer.upstream import require_same_ids, tokenizers_object, transformers_object

_NEIGHBOURS = ("", "a", " ", "\n", "1", ".", " a")
"""Text beside which a token may be a pretoken although it is none when alone."""


@shown
class Token(NamedTuple):
    """A token. Its string identifies it: two tokens may stand for the same bytes (``A`` and ``<0x41>``)."""

    id: int
    string: str
    bytes: bytes


@checked
@dataclass(frozen=True)
class Tokenizer:
    """A BPE tokenizer. It is never changed in place.

    `load` reads one and `save` writes one. Two are equal when they have the same vocabulary, merges, pipeline and
    other files.

    Examples:
        >>> tok = tg.load("model")
        >>> tok.kind, len(tok.tokens)
        ('byte-level', 397)
        >>> tok.encode_pretoken("Ġcat"), tok.encode_pretoken("Ġcats")
        ([290], [290, 82])
    """

    vocab: Mapping[str, int]
    """The model's vocabulary, in the order of the file. Added tokens may or may not be in it."""
    merges: tuple[tuple[int, int], ...]
    """Pairs of ids. The position in the list is the rank."""
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
    freed: Mapping[str, int] = field(default_factory=FrozenDict, compare=False)
    """Removed tokens, with the ids they had. One that is learned again gets its old id. Not written to files."""

    @classmethod
    @checked
    def of_core(cls, vocabulary: _core.Vocabulary, *, rest: str, **others: Any) -> "Tokenizer":
        """The tokenizer of a vocabulary in the core. ``vocab`` and ``merges`` are made when they are asked for."""
        tokenizer = cls({}, (), rest, **others)
        state = vars(tokenizer)
        del state["vocab"], state["merges"]
        state["core_vocabulary"] = vocabulary
        return tokenizer

    if not TYPE_CHECKING:  # for a type checker, the two are fields as all others

        def __getattr__(self, name: str) -> Any:
            state = vars(self)
            if name not in ("vocab", "merges") or "core_vocabulary" not in state:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            core = state["core_vocabulary"]
            value = state[name] = FrozenDict(core.vocab()) if name == "vocab" else core.merges()
            return value

    @cached_property
    def core_vocabulary(self) -> _core.Vocabulary:
        """The vocabulary and the merges in the core."""
        return _core.Vocabulary(dict(self.vocab), self.merges)

    @cached_property
    def original(self) -> bytes | None:
        """The bytes of the `tokenizer.json` that it was read from; None if it was changed, copied or made in memory.

        A file that was edited by hand has no layout that `style` could describe. Unchanged, it is written as it was.
        """
        return None

    def __repr__(self) -> str:
        core = self.core_vocabulary
        return f"<Tokenizer {self.kind}: {len(core):,} vocabulary entries, {core.n_merges:,} merges>"

    _repr_html_ = notebook_html

    def _facts(self) -> dict[str, Any]:
        core = self.core_vocabulary
        sizes = {"kind": self.kind, "vocabulary": len(core), "merges": core.n_merges, "rows": self.n_rows}
        return sizes | {"added tokens": [token.content for token in self.added], "files": [self.main, *self.files]}

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # without what was computed from them

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
    def priorities(self) -> Mapping[str, float] | None:
        """The tokens that merge by what the product is, whichever its parts are, each with a number: lowest first.

        A SentencePiece model and a rank file say so. None without one of these: only the listed pairs merge.
        """
        if self.piece_model:
            return {string: -score for string, score in self.piece_model.normal.items()}
        return self.ranks.ids if self.ranks else None

    @property
    def ignore_merges(self) -> bool:
        """Whether a pretoken that is a token is encoded as that token without using merges (merge skipping)."""
        return bool(self.model.get("ignore_merges"))

    @property
    def byte_fallback(self) -> bool:
        """Whether a character outside the vocabulary becomes ``<0xNN>`` tokens."""
        return bool(self.model.get("byte_fallback"))

    @cached_property
    def added(self) -> tuple[AddedToken, ...]:
        """The added tokens by ascending id, with the ids and flags that transformers gives them.

        The tokens that `tokenizer.json` lists are followed by those that only the other files name (see `settings`).
        """
        return added_tokens(self.core_vocabulary, self.document.get("added_tokens") or (), self.files)

    @property
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
        return FrozenDict({**self.vocab, **{token.content: token.id for token in self.added}})

    @cached_property
    def strings(self) -> Mapping[int, str]:
        """The string of every token by its id, added tokens included: the inverse of ``ids``."""
        return FrozenDict({token_id: string for string, token_id in self.ids.items()})

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Every token, added ones included, by ascending id. Ids may have holes."""
        tokens = self.bpe.tokens(self._unlisted(), byte_level=self.kind == "byte-level")
        return tuple(map(Token._make, tokens))

    @property
    def n_rows(self) -> int:
        """Rows that an embedding table needs: the highest id plus one, holes included."""
        highest = self.core_vocabulary.highest_id
        return max(-1 if highest is None else highest, *(token.id for token in self.added), -1) + 1

    @cached_property
    def bpe(self) -> _core.Bpe:
        """The merge table in the core. Building it checks that ids and merges are consistent."""
        return _core.Bpe(
            self.core_vocabulary,
            ignore_merges=self.ignore_merges,
            byte_fallback=self.byte_fallback,
            unk_token=self.model.get("unk_token"),
            fuse_unk=bool(self.model.get("fuse_unk")),
        )

    @property
    def missing_bytes(self) -> tuple[int, ...]:
        """The bytes that have no token, for byte-level vocabularies and byte fallback. Text with them may be lost."""
        id_of = self.core_vocabulary.id_of
        if self.kind == "byte-level":
            return tuple(byte for byte, character in CHARACTER_OF.items() if id_of(character) is None)
        # A character that is a token needs no byte tokens.
        spelled = {byte for byte in range(128) if id_of(chr(byte)) is not None}
        missing = (byte for byte in range(256) if id_of(byte_token(byte)) is None and byte not in spelled)
        return tuple(missing) if self.byte_fallback else ()

    @cached_property
    def spells_everything(self) -> bool:
        """Whether all text can be encoded: no character is dropped or replaced by the unknown token."""
        return not self.missing_bytes if self.kind == "byte-level" else self.bpe.spells_every_character

    @cached_property
    def skeleton(self) -> str:
        """``rest`` with the added tokens as its only vocabulary, so that a pipeline built from it has their ids."""
        document = json.loads(self.rest)
        document["added_tokens"] = self.added_entries
        document["model"]["vocab"] = {token.content: token.id for token in self.added}
        return json.dumps(document, ensure_ascii=False)

    @cached_property
    def pipeline(self) -> _core.Pipeline:
        """Normalizer, pre-tokenizer and added tokens in the core, as the `tokenizers` library runs them."""
        return _core.Pipeline(self.skeleton)

    @cached_property
    def structure(self) -> MergeStructure:
        """Which merge makes each token, which tokens are atomic and which are unreachable."""
        merged, atomic, unreachable = self.bpe.structure()
        added = {token.id for token in self.added}
        return MergeStructure(
            splits=FrozenDict(merged),
            atomic=frozenset(atomic),
            unreachable=tuple(token for token in unreachable if token not in added),
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256, in hex, of everything that decides how text is split into tokens.

        Ids, layout and the format of the files are not included: a tokenizer that was compacted, or saved and loaded,
        has the same hash. Extensions and prune orders store it and refuse to be applied to another tokenizer. The
        scores of a SentencePiece model are included if merges cannot reach some tokens, because they rank the merges
        that an extension adds for such tokens.
        """
        flags = {name: bool(self.model.get(name)) for name in ("ignore_merges", "byte_fallback", "fuse_unk")}
        settings = [
            self.kind,
            flags | {"unk_token": self.model.get("unk_token")},
            [self.document.get(step) for step in ("normalizer", "pre_tokenizer")],
            sorted((t.content, t.special, t.normalized, t.single_word, t.lstrip, t.rstrip) for t in self.added),
        ]
        more = [content for _, content in self._unlisted()]
        return content_hash(settings, self.core_vocabulary, more=more, score_order=self._score_order())

    def _unlisted(self) -> list[tuple[int, str]]:
        """Id and text of the added tokens that are not in the vocabulary."""
        core = self.core_vocabulary
        return [(token.id, token.content) for token in self.added if core.id_of(token.content) is None]

    def _score_order(self) -> list[str]:
        """The tokens by priority, then by id, where an extension depends on it."""
        priorities = self.priorities
        if priorities is None or not self.structure.unreachable:
            return []
        return sorted(priorities, key=lambda string: (priorities[string], self.ids.get(string, -1)))

    @checked
    def with_tokens(
        self, ids: Mapping[str, int], merges: Iterable[tuple[str, str]], *, learned: Sequence[str] = ()
    ) -> "Tokenizer":
        """The tokenizer with exactly these tokens and merges; all files that name tokens are rewritten to match.

        All added tokens, including those that only `tokenizer_config.json` listed, are written to `added_tokens` and
        to the vocabulary of `tokenizer.json`, so that every loader gives them these ids.

        Args:
            ids: All tokens.
            merges: All merges, in order.
            learned: The tokens that are new, in the order they were learned.

        Raises:
            InvalidTokenizerError: Ids and merges are inconsistent, or a token that the settings name is missing.
        """
        vocab = dict(sorted(ids.items(), key=lambda item: item[1]))
        try:
            pairs = [(ids[left], ids[right]) for left, right in merges]
        except KeyError as error:
            raise InvalidTokenizerError(
                f"a merge names {error.args[0]!r}, which is no token", hint="give every token of a merge an id"
            ) from error
        return self._changed(ids, _core.Vocabulary(vocab, pairs), learned)

    @checked
    def edited(
        self,
        ids: Mapping[str, int],
        inserted: Sequence[tuple[int, tuple[str, str]]] = (),
        *,
        learned: Sequence[str] = (),
    ) -> "Tokenizer":
        """As `with_tokens`, with the merges of this tokenizer whose parts and product are kept, and new ones.

        Args:
            ids: All tokens.
            inserted: New merges, each with the rank of the merge that it is placed before, in ascending order.
            learned: The tokens that are new, in the order they were learned.

        Raises:
            InvalidTokenizerError: As `with_tokens`.
        """
        placed = [(place, left, right) for place, (left, right) in inserted]
        return self._changed(ids, self.core_vocabulary.edited(dict(ids), placed), learned)

    def _changed(self, ids: Mapping[str, int], vocabulary: _core.Vocabulary, learned: Sequence[str]) -> "Tokenizer":
        """The tokenizer with another vocabulary; ``ids`` has its tokens."""
        change = self.change_to(ids, learned)
        # As the loaders of these files merge: a new token also brings the merges that make a token of the base with it.
        if self.main == self.rank_file:
            vocabulary = _core.Vocabulary.by_products(dict(ids), [*change.specials])
        elif self.main == self.piece_file and self.piece_model:
            pieces = self.piece_model.rewritten(change.new, change.moved, change.specials)
            vocabulary = _core.Vocabulary(vocabulary.vocab(), pieces.merges(ids))
        files = rewrite_files(self.files, change, _pairs(vocabulary), main=self.main)
        changed = Tokenizer.of_core(
            vocabulary,
            rest=rewrite_document(self.rest, self.added_entries, change),
            files=FrozenDict(files),
            style=self.style,
            merges_as_text=self.merges_as_text,
            main=self.main,
            freed=FrozenDict({t: i for t, i in {**self.freed, **change.gone}.items() if t not in ids}),
        )
        _ = changed.bpe  # building the table checks every id and merge
        _require_nothing_added(changed)
        return changed

    @checked
    def change_to(self, ids: Mapping[str, int], learned: Sequence[str]) -> Change:
        """The change from the tokens of this tokenizer to others.

        Args:
            ids: All tokens after the change.
            learned: The tokens that are new, in the order they were learned.
        """
        specials = {ids[t.content]: (t.content, t.special) for t in self.added if t.content in ids}
        return Change.of(self.ids, ids, learned, specials)

    def compact(self) -> "Tokenizer":
        """The tokenizer without holes among its ids: tokens keep their order, added ones included."""
        compacted = self.edited({token.string: place for place, token in enumerate(self.tokens)})
        vars(compacted)["freed"] = FrozenDict()  # not by `replace`, which would make Python values of all tokens
        return compacted

    def merge_strings(self) -> list[tuple[str, str]]:
        """The merges as pairs of strings."""
        return self.core_vocabulary.merge_strings()

    @checked
    def encode_pretoken(self, pretoken: str) -> list[int]:
        """The ids of one pretoken, spelled in the alphabet of the vocabulary."""
        return self.bpe.encode(pretoken)

    @checked
    def pretokenize(self, text: str) -> list[str | int]:
        """The pretokens of a text in order, and the id of each added token at its position."""
        return self.pipeline.pieces(text)

    @checked
    def is_whole_pretoken(self, token: Token) -> bool:
        """Whether merge skipping can produce a token: its text, alone or beside other text, is a whole pretoken."""
        try:
            text = token.bytes.decode()
        except UnicodeDecodeError:
            return False
        places = (before + text + after for before in _NEIGHBOURS for after in _NEIGHBOURS)
        return self.ignore_merges and any(token.string in self.pretokenize(place) for place in places)

    @checked
    def encode(self, text: str) -> list[int]:
        """The ids of a text, without the special tokens of the post-processor, truncation or padding."""
        return self.pipeline.encode(self.bpe, text)

    @checked
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as ``encode`` gives them. Uses all cores.

        Examples:
            >>> tg.load("model").encode_batch(["the cat", "the"])
            [[262, 290], [262]]
        """
        return self.pipeline.encode_batch(self.bpe, [*texts])

    def to_tokenizers(self) -> Any:
        """The tokenizer as a `tokenizers.Tokenizer`, which gives the same ids as ``encode``.

        Added tokens that only `tokenizer_config.json` names are included.

        Raises:
            OptionError: The `tokenizers` library is not installed.

        Examples:
            >>> tg.load("model").to_tokenizers().encode("the cat", add_special_tokens=False).ids
            [262, 290]
        """
        return tokenizers_object(self._whole_document())

    def to_transformers(self) -> Any:
        """The tokenizer as a fast tokenizer of transformers, with its special tokens and chat template.

        The same as saving the tokenizer and loading the folder with `AutoTokenizer`. Code among the files is not
        executed.

        Raises:
            OptionError: transformers is not installed.
            UnsupportedTokenizerError: transformers cannot load the tokenizer.
            InvalidTokenizerError: transformers builds another tokenizer: its class for this model may ignore parts of
                `tokenizer.json`.

        Examples:
            >>> tg.load("model").to_transformers()("the cat", add_special_tokens=False)["input_ids"]
            [262, 290]
        """
        loaded = transformers_object({**self.files, "tokenizer.json": self._whole_document().encode()})
        require_same_ids(loaded, self.encode, _probe_texts(self))
        return loaded

    def _whole_document(self) -> str:
        """`tokenizer.json` with all added tokens, also those that only other files name."""
        document = json.loads(self.rest)
        document["added_tokens"] = self.added_entries
        document["model"] |= {"vocab": dict(self.vocab), "merges": self.merge_strings()}
        return json.dumps(document, ensure_ascii=False)


def _probe_texts(tokenizer: Tokenizer) -> list[str]:
    """Text of up to 2,000 tokens from all over the vocabulary, eight at a time, each followed by an added token."""
    chosen = [token.bytes for token in tokenizer.tokens[:: len(tokenizer.tokens) // 2000 + 1]]
    texts = [b"".join(chosen[at : at + 8]).decode(errors="replace") for at in range(0, len(chosen), 8)]
    added = [token.content for token in tokenizer.added][: len(texts)]
    return [text + content for text, content in zip_longest(texts, added, fillvalue="")]


def _pairs(vocabulary: _core.Vocabulary) -> Iterator[tuple[str, str]]:
    """The merges as strings, which are made only if they are asked for."""
    yield from vocabulary.merge_strings()


def _require_nothing_added(tokenizer: Tokenizer) -> None:
    """Refuses a change after which loaders would add a removed token again because a file still names it."""
    id_of = tokenizer.core_vocabulary.id_of
    back = next((token for token in tokenizer.added if id_of(token.content) is None), None)
    if back is not None:
        raise InvalidTokenizerError(
            f"the token {back.content!r} cannot be removed: the settings of the tokenizer name it, so loaders add it "
            f"again, with the id {back.id:,}",
            hint="keep the token, or take its name out of tokenizer_config.json and special_tokens_map.json",
        )
