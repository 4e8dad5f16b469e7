"""The frozen `Tokenizer`: tokens, merges, added tokens, and the untouched rest of the file.

It stores the content of the files (`content`) and computes everything else from that. It reads and writes no files:
`tokengraft.formats` does.
"""

import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain, islice, zip_longest
from operator import itemgetter
from types import ModuleType
from typing import Any

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, OptionError, UnsupportedTokenizerError, require_list, wrong_type
from tokengraft.output.atomic import write_files
from tokengraft.output.partial import temporary_folder
from tokengraft.representation import FrozenDict, notebook_html
from tokengraft.tokenizer.added import AddedToken
from tokengraft.tokenizer.change import Change
from tokengraft.tokenizer.content import MergeStructure, Token, TokenizerContent
from tokengraft.tokenizer.kind import pipeline_alone, token_bytes
from tokengraft.tokenizer.piece_model import PieceRules, all_splits
from tokengraft.tokenizer.rewrite import rewrite_document, rewrite_files

_INSTEAD = "pass `tokenizer_object=tokenizer.to_tokenizers()` to `transformers.PreTrainedTokenizerFast`"


@dataclass(frozen=True, eq=False, repr=False)
class Tokenizer(TokenizerContent):
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

    def __repr__(self) -> str:
        core = self.core_vocabulary
        merges = f"{core.n_merges:,} merges" if self.algorithm == "BPE" else self.algorithm
        return f"<Tokenizer {self.kind}: {len(core):,} vocabulary entries, {merges}>"

    _repr_html_ = notebook_html

    def _facts(self) -> dict[str, Any]:
        core = self.core_vocabulary
        sizes = {"kind": self.kind, "vocabulary": len(core), "merges": core.n_merges, "rows": self.n_rows}
        return sizes | {"added tokens": [token.content for token in self.added], "files": [self.main, *self.files]}

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Every token, added ones included, by ascending id. Ids may have holes."""
        return tuple(map(Token._make, self.core_model.tokens(self.unlisted)))

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
        document = json.loads(self.rest) | {"added_tokens": self.added_entries()}
        return json.dumps(
            pipeline_alone(document, {token.content: token.id for token in self.added}), ensure_ascii=False
        )

    @cached_property
    def pipeline(self) -> _core.Pipeline:
        """Normalizer, pre-tokenizer and added tokens in the core, as the `tokenizers` library runs them."""
        return _core.Pipeline(self.skeleton)

    @cached_property
    def core_cutters(self) -> dict[PieceRules, _core.Cutter]:
        """What `counts.fingerprint.cutter` made, by rules. Counting, learning and every check of counts need it."""
        return {}

    @cached_property
    def kept_by_default(self) -> dict[str, frozenset[int]]:
        """What `pruning.removable.default_tokens` found, by reason. It reads the text of every token."""
        return {}

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
    def unreachable(self) -> Sequence[int]:
        """As in ``structure``, whose other parts take 40 MB for a vocabulary of 262,144 tokens."""
        return self.core_model.unreachable([token.id for token in self.added])

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
        strings, merges = self.core_vocabulary.hashed_parts([content for _, content in self.unlisted])
        if self.algorithm != "BPE":
            apart = sorted(content for _, content in self.unlisted)
            settings += [self.algorithm, self.model.get("max_input_chars_per_word"), dict(self.scores), apart]
        first = json.dumps(settings, sort_keys=True)[:-1]
        priorities, last = self.merge_priorities or {}, ""
        if priorities and self.unreachable:
            by_priority = sorted(priorities, key=lambda string: (priorities[string], self.ids.get(string, -1)))
            last = "".join(f", {json.dumps(string)}" for string in by_priority)
        return sha256(b"".join([f"{first}, ".encode(), strings, f"{last}]".encode(), merges])).hexdigest()

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
        return self._changed(Change(self.ids, ids, self.added), _core.Vocabulary(vocab, pairs))

    def edited(
        self,
        ids: Mapping[str, int],
        inserted: Sequence[tuple[int, tuple[str, str]]] = (),
        *,
        learned: Sequence[str] | None = None,
        scores: Mapping[str, float] = FrozenDict(),
        given: Sequence[AddedToken] = (),
        roles: Mapping[str, str] = FrozenDict(),
    ) -> "Tokenizer":
        """As `with_tokens`, with the merges of this tokenizer whose parts and product are kept, and new ones.

        Args:
            ids: All tokens.
            inserted: New merges, each with the rank of the merge that it is placed before, in ascending order.
            learned: The tokens that are new, in the order they were learned; by default in that of their ids.
            scores: Unigram: the scores of the new tokens.
            given: Added tokens that are new.
            roles: Settings such as `eos_token` that name another token.
        """
        placed = [(place, left, right) for place, (left, right) in inserted]
        listed = self._in_vocabulary(ids, given)
        change = Change(self.ids, ids, (*self.added, *given), learned, scores, roles)
        changed = self._changed(change, self.core_vocabulary.edited(listed, placed))
        # The core would make a second copy of every string.
        ascends = all(map(operator.lt, listed.values(), islice(listed.values(), 1, None)))
        changed.__dict__["vocab"] = FrozenDict(listed if ascends else sorted(listed.items(), key=itemgetter(1)))
        return changed

    def _in_vocabulary(self, ids: Mapping[str, int], given: Iterable[AddedToken] = ()) -> dict[str, int]:
        """The tokens that a changed vocabulary lists, out of all. Of BPE, all: merges do not make added tokens.

        Unigram and WordPiece would find an added token in text by itself if their vocabulary listed it.
        """
        if self.algorithm == "BPE":
            return dict(ids)
        apart = {content for _, content in self.unlisted}
        # One with the id of a token that is listed is listed in its place.
        apart |= {token.content for token in given if self.core_vocabulary.string_of(token.id) is None}
        return {token: token_id for token, token_id in ids.items() if token not in apart}

    def _changed(self, change: Change, vocabulary: _core.Vocabulary) -> "Tokenizer":
        """The tokenizer with another vocabulary; ``change.ids`` has its tokens."""
        ids = change.ids
        # As the loaders of these files merge: a new token also brings the merges that make a token of the base with it.
        if self.main == self.rank_file:
            vocabulary = _core.Vocabulary.by_products(dict(ids), [*change.specials])
        elif self.main == self.piece_file and self.piece_model and self.algorithm == "BPE":
            pieces = self.piece_model.changed(change)
            merges = [(ids[left], ids[right]) for left, right in all_splits(pieces.normal, ids)]
            vocabulary = _core.Vocabulary(vocabulary.vocab(), merges)
        freed, all_scores = {**self.freed, **change.gone}, {**self.scores, **change.scores}
        changed = replace(
            self,
            core_vocabulary=vocabulary,
            rest=rewrite_document(self.rest, self.added_entries(), change),
            files=FrozenDict(rewrite_files(self.files, change, vocabulary.merge_strings, main=self.main)),
            scores=FrozenDict({t: all_scores[t] for t in vocabulary.vocab()} if self.scores else {}),
            freed=FrozenDict({t: i for t, i in freed.items() if t not in ids}),
            unpruned=None,
        )
        _ = changed.core_model  # building the table checks every id and merge
        if self.algorithm != "BPE" and changed.ids == dict(ids):
            return changed
        token_id, content = next(iter(changed.unlisted), (0, None))
        if content is not None:
            raise InvalidTokenizerError(
                f"the token {content!r} cannot be removed: the settings of the tokenizer name it, so loaders add it "
                f"again, with the id {token_id:,}",
                hint="keep the token, or take its name out of tokenizer_config.json and special_tokens_map.json",
            )
        return changed

    def compact(self) -> "Tokenizer":
        """The tokenizer without holes among its ids: tokens keep their order, added ones included."""
        return replace(self, freed=FrozenDict()).edited({token.string: i for i, token in enumerate(self.tokens)})

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
        return self.decode_strings([strings[token_id] for token_id in given])

    def decode_strings(self, tokens: list[str]) -> str:
        """As `decode`, for tokens given as the vocabulary spells them, which it need not have."""
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
        return _imported("tokenizers").Tokenizer.from_str(whole_document(self))

    def to_transformers(self) -> Any:
        """The tokenizer as a fast tokenizer of transformers, with its special tokens and chat template.

        The same as saving the tokenizer and loading the folder with `AutoTokenizer`. Code among the files is not
        executed. Up to 2,000 tokens from all over the vocabulary are encoded by both, eight at a time, each followed
        by an added token.

        Raises:
            OptionError: transformers is not installed.
            UnsupportedTokenizerError: transformers cannot load the tokenizer.
            InvalidTokenizerError: transformers builds another tokenizer: its class for this model may ignore parts of
                `tokenizer.json`.

        Examples:
            >>> tg.load("model").to_transformers()("the cat", add_special_tokens=False)["input_ids"]
            [262, 290]
        """
        transformers = _imported("transformers")
        # Without settings, `AutoTokenizer` of transformers 4 does not know which class to take.
        has_settings = "tokenizer_config.json" in self.files
        loader = transformers.AutoTokenizer if has_settings else transformers.PreTrainedTokenizerFast
        with temporary_folder() as folder:
            write_files({**self.files, "tokenizer.json": whole_document(self).encode()}, folder)
            try:
                loaded = loader.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
            except Exception as error:  # transformers raises OSError, ValueError, KeyError and its dependencies' errors
                raise UnsupportedTokenizerError(
                    f"transformers cannot load the tokenizer: {type(error).__name__}: {error}", hint=_INSTEAD
                ) from error
        chosen = [token.bytes for token in self.tokens[:: len(self.tokens) // 2000 + 1]]
        parts = [b"".join(chosen[at : at + 8]).decode(errors="replace") for at in range(0, len(chosen), 8)]
        added = [token.content for token in self.added][: len(parts)]
        texts = [text + content for text, content in zip_longest(parts, added, fillvalue="")]
        wrong = [text for text in texts if loaded.encode(text, add_special_tokens=False) != self.encode(text)]
        if wrong:
            raise InvalidTokenizerError(
                f"transformers' {type(loaded).__name__} encodes {len(wrong):,} of {len(texts):,} sample texts "
                f"differently, such as {wrong[0]!r}",
                hint=_INSTEAD,
            )
        return loaded


def whole_document(tokenizer: Tokenizer) -> str:
    """`tokenizer.json` with all added tokens, also those that only other files name."""
    document = json.loads(tokenizer.rest) | {"added_tokens": tokenizer.added_entries()}
    document["model"] |= tokenizer.model_lists()
    return json.dumps(document, ensure_ascii=False)


def _imported(library: str) -> ModuleType:
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # a missing torch does not matter here
    try:
        return __import__(library)
    except ImportError as error:
        raise OptionError(f"`{library}` is not installed", hint=f"install it: `pip install {library}`") from error
