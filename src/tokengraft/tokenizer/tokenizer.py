"""The frozen `Tokenizer`: tokens, merges, added tokens, and the untouched rest of the file.

It stores the content of the files and computes everything else from that. It reads and writes no files:
`tokengraft.formats` does.
"""

import copyreg
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from tokengraft import _core
from tokengraft.errors import (
    InvalidTokenizerError,
    OptionError,
    require_list,
    wrong_type,
)
from tokengraft.output.json_file import JsonStyle
from tokengraft.representation import FrozenDict, notebook_html, shown
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
    pipeline_alone,
    token_bytes,
)
from tokengraft.tokenizer.piece_model import PieceModel, piece_file
from tokengraft.tokenizer.rank_file import RankFile, rank_file
from tokengraft.tokenizer.rewrite import Change, rewrite_document, rewrite_files
from tokengraft.tokenizer.upstream import require_same_ids, tokenizers_object, transformers_object

copyreg.pickle(_core.Vocabulary, lambda core: (_core.Vocabulary, (core.vocab(), core.merges())))


@shown
class Token(NamedTuple):
    """A token. Its string identifies it: two tokens may stand for the same bytes (``A`` and ``<0x41>``)."""

    id: int
    string: str
    bytes: bytes


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
class Tokenizer:
    """A tokenizer. It is never changed in place.

    `load` reads one and `save` writes one. Two are equal when they have the same vocabulary, merges, pipeline and
    other files.

    Examples:
        >>> tok = tg.load("model")
        >>> tok.kind, len(tok.tokens)
        ('byte-level', 397)
        >>> tok.encode_pretoken("Ġcat"), tok.encode_pretoken("Ġcats")
        ([290], [290, 82])
    """

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self._content() == other._content()

    def _content(self) -> tuple[Any, ...]:
        return self.vocab, self.merges, *(getattr(self, each.name) for each in fields(self) if each.compare)

    def __repr__(self) -> str:
        core = self.core_vocabulary
        merges = f"{core.n_merges:,} merges" if self.algorithm == "BPE" else self.algorithm
        return f"<Tokenizer {self.kind}: {len(core):,} vocabulary entries, {merges}>"

    _repr_html_ = notebook_html

    def _facts(self) -> dict[str, Any]:
        core = self.core_vocabulary
        sizes = {"kind": self.kind, "vocabulary": len(core), "merges": core.n_merges, "rows": self.n_rows}
        return sizes | {"added tokens": [token.content for token in self.added], "files": [self.main, *self.files]}

    def __len__(self) -> int:
        """The number of tokens, added ones included. An embedding needs ``n_rows``, which counts holes too."""
        return len(self.core_vocabulary) + len(self._unlisted())

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

    def _added_entries(self) -> list[Entry]:
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
        return tuple(map(Token._make, self.core_model.tokens(self._unlisted())))

    @property
    def n_rows(self) -> int:
        """Rows that an embedding table needs: the highest id plus one, holes included."""
        highest = self.core_vocabulary.highest_id
        return max(-1 if highest is None else highest, *(token.id for token in self.added), -1) + 1

    @property
    def algorithm(self) -> Algorithm:
        """How the model splits pretokens."""
        algorithm: Algorithm = algorithm_of(self.model)
        return algorithm

    @cached_property
    def core_model(self) -> _core.Model:
        """The model in the core. Building it checks that ids, merges and scores are consistent."""
        vocabulary, model = self.core_vocabulary, self.model
        if self.algorithm == "WordPiece":
            return _core.Model.word_piece(
                vocabulary, unk_token=model["unk_token"], max_characters=model["max_input_chars_per_word"]
            )
        if self.algorithm == "Unigram":
            scores = [self.scores[string] for string in sorted(self.vocab, key=self.vocab.__getitem__)]
            unk_id = model.get("unk_id")
            return _core.Model.unigram(vocabulary, scores, unk_id=unk_id, byte_fallback=self.byte_fallback)
        return _core.Model.bpe(
            vocabulary,
            byte_level=self.kind == "byte-level",
            ignore_merges=self.ignore_merges,
            byte_fallback=self.byte_fallback,
            unk_token=model.get("unk_token"),
            fuse_unk=bool(model.get("fuse_unk")),
        )

    @property
    def unknown(self) -> str | None:
        """The token that unknown text becomes; None if there is none."""
        if self.algorithm == "Unigram":
            unk_id = self.model.get("unk_id")
            return None if unk_id is None else self.core_vocabulary.string_of(unk_id)
        unknown: str | None = self.model.get("unk_token")
        return unknown

    @cached_property
    def missing_bytes(self) -> tuple[int, ...]:
        """The bytes that lack a token and that some text has, which is lost: for byte-level kinds and byte fallback."""
        id_of = self.core_vocabulary.id_of
        if self.kind == "byte-level":
            return tuple(byte for byte in BYTES_OF_TEXT if id_of(CHARACTER_OF[byte]) is None)
        missing = [byte for byte in BYTES_OF_TEXT if self.byte_fallback and id_of(byte_token(byte)) is None]
        # A character that is a token needs no byte tokens.
        return tuple(byte for byte in missing if any(id_of(character) is None for character in characters_with(byte)))

    @cached_property
    def spells_everything(self) -> bool:
        """Whether all text can be encoded: no character is dropped or replaced by the unknown token."""
        if self.kind == "byte-level" or self.byte_fallback:
            return not self.missing_bytes
        id_of = self.core_vocabulary.id_of
        return all(id_of(chr(point)) is not None for point in chain(range(0xD800), range(0xE000, 0x110000)))

    @cached_property
    def skeleton(self) -> str:
        """``rest`` with the added tokens as its only vocabulary, so that a pipeline built from it has their ids."""
        document = json.loads(self.rest) | {"added_tokens": self._added_entries()}
        return json.dumps(
            pipeline_alone(document, {token.content: token.id for token in self.added}), ensure_ascii=False
        )

    @cached_property
    def pipeline(self) -> _core.Pipeline:
        """Normalizer, pre-tokenizer and added tokens in the core, as the `tokenizers` library runs them."""
        return _core.Pipeline(self.skeleton)

    @cached_property
    def structure(self) -> MergeStructure:
        """Which merge makes each token, which tokens are atomic and which are unreachable."""
        merged, atomic, unreachable = self.core_model.structure()
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
        has the same hash. Extensions, prune orders and plans store it, so it must never change for the same tokenizer.
        The scores of a SentencePiece model are included if merges cannot reach some tokens, because they rank the
        merges that an extension adds for such tokens.
        """
        flags = {name: bool(self.model.get(name)) for name in ("ignore_merges", "byte_fallback", "fuse_unk")}
        settings: list[Any] = [
            self.kind,
            flags | {"unk_token": self.unknown},
            [self.document.get(step) for step in ("normalizer", "pre_tokenizer")],
            sorted((t.content, t.special, t.normalized, t.single_word, t.lstrip, t.rstrip) for t in self.added),
        ]
        # Merges as places in the sorted strings: as exact as the strings, and several times as fast to hash.
        strings, merges = self.core_vocabulary.hashed_parts([content for _, content in self._unlisted()])
        if self.algorithm != "BPE":
            apart = sorted(content for _, content in self._unlisted())
            settings += [self.algorithm, self.model.get("max_input_chars_per_word"), dict(self.scores), apart]
        first = json.dumps(settings, sort_keys=True)[:-1]
        last = "".join(f", {json.dumps(string)}" for string in self._score_order())
        return sha256(b"".join([f"{first}, ".encode(), strings, f"{last}]".encode(), merges])).hexdigest()

    def _unlisted(self) -> list[tuple[int, str]]:
        """Id and text of the added tokens that are not in the vocabulary."""
        core = self.core_vocabulary
        return [(token.id, token.content) for token in self.added if core.id_of(token.content) is None]

    def _score_order(self) -> list[str]:
        """The tokens by priority, then by id, where an extension depends on it."""
        priorities = merge_priorities(self)
        if priorities is None or not self.structure.unreachable:
            return []
        return sorted(priorities, key=lambda string: (priorities[string], self.ids.get(string, -1)))

    def with_tokens(self, ids: Mapping[str, int], merges: Iterable[tuple[str, str]]) -> "Tokenizer":
        """The tokenizer with exactly these tokens and merges; all files that name tokens are rewritten to match.

        All added tokens, including those that only `tokenizer_config.json` listed, are written to `added_tokens` and
        to the vocabulary of `tokenizer.json`, so that every loader gives them these ids.

        Raises:
            InvalidTokenizerError: Ids and merges are inconsistent, or a token that the settings name is missing.
        """
        vocab = dict(sorted(self._in_vocabulary(ids).items(), key=lambda item: item[1]))
        try:
            pairs = [(ids[left], ids[right]) for left, right in merges]
        except KeyError as error:
            raise InvalidTokenizerError(
                f"a merge names {error.args[0]!r}, which is no token", hint="give every token of a merge an id"
            ) from error
        return self._changed(ids, _core.Vocabulary(vocab, pairs))

    def edited(
        self,
        ids: Mapping[str, int],
        inserted: Sequence[tuple[int, tuple[str, str]]] = (),
        *,
        learned: Sequence[str] | None = None,
        scores: Mapping[str, float] | None = None,
    ) -> "Tokenizer":
        """As `with_tokens`, with the merges of this tokenizer whose parts and product are kept, and new ones.

        Args:
            ids: All tokens.
            inserted: New merges, each with the rank of the merge that it is placed before, in ascending order.
            learned: The tokens that are new, in the order they were learned; by default in that of their ids.
            scores: Unigram: the scores of the new tokens.
        """
        placed = [(place, left, right) for place, (left, right) in inserted]
        vocabulary = self.core_vocabulary.edited(self._in_vocabulary(ids), placed)
        return self._changed(ids, vocabulary, learned, scores=scores)

    def _in_vocabulary(self, ids: Mapping[str, int]) -> dict[str, int]:
        """The tokens that a changed vocabulary lists, out of all. Of BPE, all: merges do not make added tokens.

        Unigram and WordPiece would find an added token in text by itself if their vocabulary listed it.
        """
        apart = {content for _, content in self._unlisted()} if self.algorithm != "BPE" else ()
        return {token: token_id for token, token_id in ids.items() if token not in apart}

    def _changed(
        self,
        ids: Mapping[str, int],
        vocabulary: _core.Vocabulary,
        learned: Sequence[str] | None = None,
        freed: Mapping[str, int] | None = None,
        scores: Mapping[str, float] | None = None,
    ) -> "Tokenizer":
        """The tokenizer with another vocabulary; ``ids`` has its tokens. ``freed`` replaces the removed tokens."""
        change = Change.of(self.ids, ids, self.added, learned, scores)
        # As the loaders of these files merge: a new token also brings the merges that make a token of the base with it.
        if self.main == self.rank_file:
            vocabulary = _core.Vocabulary.by_products(dict(ids), [*change.specials])
        elif self.main == self.piece_file and self.piece_model and self.algorithm == "BPE":
            pieces = self.piece_model.rewritten(change.new, change.moved, change.specials)
            vocabulary = _core.Vocabulary(vocabulary.vocab(), pieces.merges(ids))
        freed = {**self.freed, **change.gone} if freed is None else freed
        all_scores = {**self.scores, **change.scores}
        changed = replace(
            self,
            core_vocabulary=vocabulary,
            rest=rewrite_document(self.rest, self._added_entries(), change),
            files=FrozenDict(rewrite_files(self.files, change, vocabulary.merge_strings, main=self.main)),
            scores=FrozenDict({t: all_scores[t] for t in vocabulary.vocab()} if self.scores else {}),
            freed=FrozenDict({t: i for t, i in freed.items() if t not in ids}),
        )
        _ = changed.core_model  # building the table checks every id and merge
        if self.algorithm != "BPE" and changed.ids == dict(ids):
            return changed
        token_id, content = next(iter(changed._unlisted()), (0, None))
        if content is not None:
            raise InvalidTokenizerError(
                f"the token {content!r} cannot be removed: the settings of the tokenizer name it, so loaders add it "
                f"again, with the id {token_id:,}",
                hint="keep the token, or take its name out of tokenizer_config.json and special_tokens_map.json",
            )
        return changed

    def compact(self) -> "Tokenizer":
        """The tokenizer without holes among its ids: tokens keep their order, added ones included."""
        ids = {token.string: place for place, token in enumerate(self.tokens)}
        return self._changed(ids, self.core_vocabulary.edited(self._in_vocabulary(ids), []), freed={})

    def merge_strings(self) -> list[tuple[str, str]]:
        """The merges as pairs of strings."""
        return self.core_vocabulary.merge_strings()

    def encode_pretoken(self, pretoken: str) -> list[int]:
        """The ids of one pretoken, spelled in the alphabet of the vocabulary."""
        return self.core_model.encode(pretoken)

    def pretokenize(self, text: str) -> list[str | int]:
        """The pretokens of a text in order, and the id of each added token at its position."""
        return self.pipeline.pieces(text)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without the special tokens of the post-processor, truncation or padding."""
        return self.pipeline.encode_batch(self.core_model, [text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as ``encode`` gives them. Uses all cores.

        Examples:
            >>> tg.load("model").encode_batch(["the cat", "the"])
            [[262, 290], [262]]
        """
        require_list("texts", texts)
        return self.pipeline.encode_batch(self.core_model, [*texts])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids, special tokens included: what `tokenizers` gives with ``skip_special_tokens=False``.

        The decoder of `tokenizer.json` makes the text. It removes the space that most SentencePiece types put before a
        text, and bytes that are not valid UTF-8 become U+FFFD. Without a decoder, the bytes of the tokens are joined,
        where `tokenizers` would put spaces between them. ``tokens`` has the bytes of each token.

        Raises:
            OptionError: An id has no token, where `tokenizers` would leave it out.

        Examples:
            >>> tok = tg.load("model")
            >>> tok.decode(tok.encode("the cat"))
            'the cat'
        """
        require_list("ids", ids, "whole numbers")
        try:
            strings, given = self.strings, [operator.index(token_id) for token_id in ids]
        except TypeError as error:  # an iterator of something else
            raise wrong_type("`ids`", ids, ["a list of whole numbers"]) from error
        wrong = next((token_id for token_id in given if token_id not in strings), None)
        if wrong is not None:
            raise OptionError(
                f"there is no token with the id {wrong:,}; the tokenizer has {len(self):,} tokens, with ids below "
                f"{self.n_rows:,}",
                hint="leave such ids out, such as padding; a model that generates one may need "
                "`transplant(hole_rows='lowest')`",
            )
        tokens = [strings[token_id] for token_id in given]
        if self.document.get("decoder") is None:
            return b"".join(token_bytes(token, self.kind) for token in tokens).decode(errors="replace")
        return self.pipeline.decode(tokens)

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
        document["added_tokens"] = self._added_entries()
        document["model"] |= self.model_lists()
        return json.dumps(document, ensure_ascii=False)

    def model_lists(self) -> dict[str, Any]:
        """Vocabulary, and merges or scores, as the model of a `tokenizer.json` lists them."""
        if self.algorithm == "Unigram":
            return {"vocab": [[token, self.scores[token]] for token in sorted(self.vocab, key=self.vocab.__getitem__)]}
        if self.algorithm == "WordPiece":
            return {"vocab": dict(self.vocab)}
        return {"vocab": dict(self.vocab), "merges": self.merge_strings()}


def _probe_texts(tokenizer: Tokenizer) -> list[str]:
    """Text of up to 2,000 tokens from all over the vocabulary, eight at a time, each followed by an added token."""
    chosen = [token.bytes for token in tokenizer.tokens[:: len(tokenizer.tokens) // 2000 + 1]]
    texts = [b"".join(chosen[at : at + 8]).decode(errors="replace") for at in range(0, len(chosen), 8)]
    added = [token.content for token in tokenizer.added][: len(texts)]
    return [text + content for text, content in zip_longest(texts, added, fillvalue="")]


def merge_priorities(tokenizer: Tokenizer) -> Mapping[str, float] | None:
    """The tokens that merge by what the product is, whichever its parts are, each with a number: lowest first.

    A SentencePiece model and a rank file say so. None without one of these: only the listed pairs merge.
    """
    if tokenizer.piece_model:
        return {string: -score for string, score in tokenizer.piece_model.normal.items()}
    return tokenizer.ranks.ids if tokenizer.ranks else None
