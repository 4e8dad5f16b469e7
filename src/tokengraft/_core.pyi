from collections.abc import Callable, Sequence
from os import PathLike
from typing import Literal, final

from tokengraft.corpus.block import Block
from tokengraft.tokenizer.piece_model import PieceRules

__all__ = [
    "Counter",
    "Counts",
    "Cutter",
    "Model",
    "Pipeline",
    "Remaining",
    "Rows",
    "Segmenter",
    "Upstream",
    "Vocabulary",
    "__version__",
    "documents",
    "edit_distances",
    "extend",
    "extend_pieces",
    "give_back_freed",
    "marks",
    "of_scripts",
    "pairs",
    "script_properties",
    "scripts",
    "text_size",
]

__version__: str

@final
class Segmenter:
    """Splits documents into tokens. Long documents are processed in parts."""
    def __new__(cls, models: list[Model], skeleton: str, *, cutter: Cutter | None) -> Segmenter: ...
    def segment(self, documents: Sequence[str]) -> list[tuple[bytes, bytes, int, int]]:
        """For each model: ids of 32 bits, tokens of each document as 64 bits, pretokens, tokens by merges alone."""

def text_size(documents: Sequence[str]) -> tuple[int, int, int]:
    """Bytes, characters and words of documents. Words are separated by white space."""

def edit_distances(ours: tuple[bytes, bytes], theirs: tuple[bytes, bytes], longest: int) -> bytes:
    """The token edits of each document as 64 bits; -1 if the two differ over more than ``longest`` tokens.

    Both are numbers of 32 bits, and where each document begins and the last one ends, as 64 bits.
    """

@final
class Vocabulary:
    """The tokens and merges of a tokenizer file. Python values of them are made when they are asked for."""
    def __new__(cls, vocab: dict[str, int], merges: Sequence[tuple[int, int]]) -> Vocabulary: ...
    @staticmethod
    def read(raw: bytes) -> tuple[bytes, bool, Vocabulary] | None:
        """The parts of a `tokenizer.json`.

        The file with an empty vocabulary and no merges, whether it lists merges as text, and its vocabulary and merges.
        None in doubt, such as for an id that is not a whole number. The file is valid if the first part is.
        """
    def edited(self, ids: dict[str, int], inserted: list[tuple[int, str, str]]) -> Vocabulary:
        """The vocabulary with other tokens, by ascending id, and the merges whose parts and product are among them.

        ``inserted`` has new merges, each with the rank of the merge that it stands before, in ascending order.
        """
    @staticmethod
    def by_products(ids: dict[str, int], apart: Sequence[int]) -> Vocabulary:
        """The vocabulary of these tokens, by ascending id, in which every pair that makes a token is a merge.

        Merges are in the order of the ids of their products, then of their parts. The tokens with the ids ``apart`` are
        neither parts nor products.
        """
    def __len__(self) -> int: ...
    @property
    def n_merges(self) -> int: ...
    @property
    def highest_id(self) -> int | None: ...
    def id_of(self, string: str) -> int | None: ...
    def string_of(self, token_id: int) -> str | None: ...
    def vocab(self) -> dict[str, int]:
        """Every token with its id, in the order of the file."""
    def merges(self) -> tuple[tuple[int, int], ...]:
        """The merges as pairs of ids."""
    def merge_ids(self) -> bytes:
        """The ids of both parts of every merge, as 32 bits."""
    def merge_strings(self, start: int = 0, end: int | None = None) -> list[tuple[str, str]]:
        """The merges of some ranks as pairs of strings; by default of all."""
    def merges_of(self, tokens: list[str]) -> list[tuple[int, int]]:
        """The merges that make some tokens, by rank: the rank of each, and the place of the token."""
    def common_merges(self, other: Vocabulary) -> int:
        """How many of the first merges are the same as those of another vocabulary."""
    def merge_difference(
        self, other: Vocabulary, apart: list[str]
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]], bool]:
        """The merges that another vocabulary lacks, those of it that this one lacks, and whether the order is the same.

        The order is that of the merges of both, without those that have one of the tokens ``apart``.
        """
    def numbered(
        self, more: list[tuple[int, str]], other: Vocabulary, other_more: list[tuple[int, str]]
    ) -> list[tuple[bytes, bytes]]:
        """Ids and numbers of all tokens of this vocabulary and of another one, by ascending id, as 32 bits.

        The same token has the same number in both. ``more`` and ``other_more`` have tokens that the vocabularies lack.
        """
    def json(self, *, indent: str | None, spaced: bool, ascii_only: bool, merges_as_text: bool) -> tuple[bytes, bytes]:
        """`model.vocab` and `model.merges` as JSON; merges as text where loaders read them back from it."""
    def hashed_parts(self, more: list[str]) -> tuple[bytes, bytes]:
        """All strings, ``more`` included, as a sorted JSON array; and merges as places in it, in 64 bits each."""

@final
class Model:
    """How pretokens are split into tokens: by BPE, Unigram or WordPiece."""
    @staticmethod
    def bpe(
        vocabulary: Vocabulary,
        *,
        byte_level: bool,
        ignore_merges: bool,
        byte_fallback: bool,
        unk_token: str | None,
        fuse_unk: bool,
    ) -> Model: ...
    @staticmethod
    def unigram(
        vocabulary: Vocabulary, scores: Sequence[float], *, unk_id: int | None, byte_fallback: bool
    ) -> Model: ...
    @staticmethod
    def word_piece(vocabulary: Vocabulary, *, unk_token: str, max_characters: int) -> Model: ...
    def encode(self, pretoken: str, *, by_merges: bool = False) -> list[int]:
        """The ids of a pretoken. ``by_merges`` turns merge skipping off."""
    def encode_token(self, string: str) -> list[int]:
        """The ids that the string of a token of another vocabulary is split into."""
    def structure(self) -> tuple[dict[int, tuple[int, int]], list[int], list[int]]:
        """The two parts of every merged token, atomic tokens, unreachable tokens; each by ascending id."""
    def atomic(self) -> list[int]:
        """The ids of the tokens that encoding starts from, ascending."""
    def with_parts(self, ids: list[int]) -> list[int]:
        """The ids of all tokens that some tokens are made of, theirs included, ascending."""
    def must_stay(self) -> list[int]:
        """The ids of tokens whose removal could change text that is not split into them. For BPE, all."""
    def parts(self, tokens: list[int], apart: list[int]) -> list[tuple[int, list[int]]]:
        """Some tokens, each with what its string is split into without it.

        For BPE, tokens that merges make have two parts, and the others, without atomic ones and those ``apart``, what
        merges make of their strings.
        """
    def expected(self, counts: list[tuple[int, int]], apart: list[int]) -> tuple[dict[int, float], dict[int, int]]:
        """How often tokens are expected, given how often each occurs; and how often they are in it, alone or inside.

        The tokens ``apart`` are not built from others.
        """
    def leaf_order(
        self, candidates: list[int], counts: list[tuple[int, int]], expected: list[tuple[int, float]]
    ) -> list[tuple[int, int]]:
        """The candidates in the order in which leaves are removed, each with its count at that time."""
    def applied(self) -> bytes:
        """Every token that merges make and its two parts, in the order of the merges, as ids of 32 bits."""
    def columns(self, more: list[tuple[int, str]]) -> tuple[bytes, bytes, bytes, bytes]:
        """Ids and lengths of all tokens as 32 bits, their text, and whether text is never made of each, by id.

        The text is the bytes of a token of a byte-level vocabulary, and the string of any other. ``more`` has tokens
        that the vocabulary lacks.
        """
    def tokens(self, more: list[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        """Ids, strings and bytes of all tokens, by ascending id. ``more`` has tokens that the vocabulary lacks."""
    def scripts(self, more: list[tuple[int, str]]) -> tuple[list[str], bytes]:
        """The scripts that tokens are written in, sorted, and for each token by id, the place of its script as a byte.

        The script of a token is that of most of its complete characters, of several the first. Digits, punctuation,
        white space and combining marks do not count. A token that has nothing else is `Common`, or `part of a
        character` if it has one.
        """
    def plain_tokens(self, more: list[tuple[int, str]]) -> list[int]:
        """The ids of the tokens that stand for white space, and ASCII digits and punctuation, alone."""
    def tokens_of(self, more: list[tuple[int, str]], texts: list[str], *, trimmed: bool) -> list[tuple[int, int]]:
        """The ids of the tokens that stand for one of some texts, each with the place of the text.

        Bytes that are not UTF-8 are U+FFFD. ``trimmed``: without ASCII characters other than letters at the ends.
        """
    def partial_tokens(self, more: list[tuple[int, str]]) -> list[int]:
        """The ids of the tokens that stand for bytes that are not UTF-8."""
    def unreachable(self, added: list[int]) -> list[int]:
        """The ids of the tokens that merges cannot make, ascending, without added ones."""
    def runs(self, added: list[int]) -> list[tuple[int, int, bool]]:
        """Runs of ids in the same use: the first, the last, and whether they belong to added tokens."""
    def summary(self, added: list[int], *, examples: int) -> tuple[tuple[int, int, int, int], list[int]]:
        """Numbers of tokens, and the ids of the learned tokens with the most bytes.

        The numbers: learned, atomic, learned and not UTF-8, learned and with the bytes of another.
        """

@final
class Remaining:
    """A model, and the tokens that are removed from it."""
    def __new__(cls, model: Model) -> Remaining: ...
    def remove(self, token_id: int) -> list[int]:
        """Removes a token, and gives the ids that its string is then split into."""
    def uses(self, token_id: int) -> list[int]:
        """The ids that merges make of the string of a token, and those that they merge on the way."""

@final
class Pipeline:
    """The normalizer, pre-tokenizer and added tokens of a `tokenizer.json`."""
    def __new__(cls, skeleton: str) -> Pipeline: ...
    @staticmethod
    def engine(skeleton: str, byte_level: bool) -> Literal["hand-written scanner", "automata", "tokenizers crate"]: ...
    @staticmethod
    def describe(skeleton: str, byte_level: bool) -> str: ...
    def pieces(self, text: str) -> list[str | int]: ...
    def encode_batch(self, model: Model, texts: list[str]) -> list[list[int]]: ...
    def decode(self, tokens: list[str]) -> str: ...

@final
class Upstream:
    """A tokenizer as the `tokenizers` library itself reads it."""
    def __new__(cls, tokenizer_json: bytes) -> Upstream: ...
    def encode_batch(self, texts: list[str]) -> list[list[int]]: ...

@final
class Cutter:
    """Where the text of a SentencePiece-type vocabulary may be cut."""
    def __new__(cls, model: Model, rules: PieceRules, added: list[str]) -> Cutter: ...
    def limits(self) -> tuple[list[str], str | None]:
        """Pairs of characters that are not cut only because a token joins them; and what may stand beside a cut.

        The latter is None where all characters may.
        """

_Limits = tuple[int, int]
_Numbers = tuple[int, int, int, int, int, int]
_Tally = tuple[_Numbers, tuple[int, int], bool]

@final
class Counter:
    """Counts pretokens; every method may be called from any thread.

    Limits are (documents, bytes); a tally is (documents, bytes, characters, pretokens, replaced, skipped), then
    (documents, bytes) read, those of documents that are held out included, and whether the limit of bytes cut a text
    short. What to hold out is (one document or piece in so many, bytes at most).
    """
    def __new__(
        cls,
        skeleton: str,
        *,
        byte_level: bool,
        cutter: Cutter | None,
        spill_folder: str | PathLike[str] | None,
        bytes_per_table: int,
        document_memory: int,
        hold_out: tuple[int, int] | None,
        through_upstream: bool = False,
    ) -> Counter: ...
    @property
    def longest_document(self) -> int:
        """The longest document that memory allows, in bytes."""
    def count(self, block: Block, limits: _Limits, skip_bad: bool) -> _Tally: ...
    def hold_out_share(self) -> list[tuple[str, int, int]]:
        """What the counter of the whole corpus has to merge, if this one is that of a part.

        Texts, each with the number of its copies that begin a document, and of those inside one: the texts held out, in
        the order of their hashes, and the smallest one that did not fit, with 0 copies.
        """
    def piece_ends(self, data: bytes) -> list[int]:
        """Where the pieces of a document end that may be held out, except the last one: more of it may follow."""
    def merge_hold_out(self, share: list[tuple[str, int, int]]) -> _Numbers:
        """Takes what counters of parts have held out, and counts what is not held out of the whole."""
    def add(self, counts: Counts) -> None: ...
    def last_cut(self, data: bytes) -> int | None: ...
    def added(self) -> list[tuple[int, int]]: ...
    def finish(self) -> Rows: ...

@final
class Rows:
    """What was counted, in order, to be read once."""
    def take(self, most: int | None, min_count: int) -> Counts:
        """The next rows, at most so many; without a number, all that are in memory, or some of those on disk."""

@final
class Counts:
    """Distinct pretokens in the order of their bytes, with their counts.

    Columns are the bytes of all pretokens, then where each begins and the last ends, and the counts, the latter two as
    little-endian 64-bit numbers.
    """
    def __new__(cls, data: bytes, offsets: bytes, counts: bytes) -> Counts: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def total(self) -> int:
        """The sum of all counts."""
    def columns(self) -> tuple[bytes, bytes, bytes]: ...
    def plus(self, other: Counts) -> Counts: ...
    def split(self, n: int) -> list[Counts]:
        """In ``n`` parts, each pretoken in the one that its hash says, the same for all counts and platforms."""
    def scaled(self, numerator: int, denominator: int) -> Counts: ...
    def characters(self, first: bool = False) -> list[tuple[str, int]]:
        """How often each character occurs, by code point; with ``first``, at the front of a pretoken."""
    def top(self, most: int, longest: int | None = None) -> list[tuple[bytes, int]]: ...
    def lost(self, model: Model, *, by_merges: bool) -> list[tuple[bytes, int]]:
        """How often each character occurs that a model drops or replaces by its unknown token, by its bytes."""
    def tokens(self, model: Model, *, by_merges: bool, uses: bool) -> list[tuple[int, int]]: ...
    def changed(self, before: Model, after: Model) -> Counts:
        """The pretokens that two models encode to different tokens, by their strings."""
    def growth(
        self, model: Model, *, first_rank: int, merge_numbers: list[int], new_tokens: list[tuple[int, int]]
    ) -> tuple[bytes, bytes, bytes, list[int]]:
        """How tokens change with each new merge. ``merge_numbers`` are those of the new ones, from ``first_rank`` on.

        Columns of 64 bits: the number of a new merge, the place of a token in ``new_tokens``, and the change of its
        occurrences. With the merges of numbers below n, a token occurs as often as its changes with numbers below n add
        up to. The numbers never fall. ``new_tokens`` has the id of each, and the number of the first merge that makes
        it. Then the number of all tokens for every n, from 0 on.
        """

def extend(
    model: Model,
    languages: list[Counts],
    tokens: int,
    *,
    min_count: int,
    max_token_bytes: int,
    forbidden: list[str],
    rules: PieceRules | None,
    unreachable_ranks: list[tuple[str, int, int]],
    max_candidates: int,
    allow: Callable[[str], bool] | None,
    scripts: list[str] | None = None,
    preserved: Counts | None = None,
    parallel: tuple[list[Counts], Counts] | None = None,
    max_share: tuple[int, int] = ...,
    progress: Callable[[int], object] | None = None,
) -> tuple[list[tuple[str, str, int, bool]], list[tuple[str, str, int, int]], list[int]]:
    """The learned merges as (left, right, count, whether it makes a new token).

    Also the pairs that were refused because of the preserved text, as (left, right, count, number of merges before),
    and the index of the language of every merge.
    """

def extend_pieces(
    model: Model,
    counts: Counts,
    tokens: int,
    *,
    given: list[str],
    min_count: int,
    max_token_bytes: int,
    forbidden: list[str],
    rules: PieceRules | None,
    allow: Callable[[str], bool] | None,
    scripts: list[str] | None = None,
    preserved: Counts | None = None,
    progress: Callable[[int], object] | None = None,
) -> tuple[list[float | None], list[tuple[str, str, int, float]], list[tuple[str, str, int, int]]]:
    """The scores of the given tokens, and the learned ones as (left, right, count, score).

    A given token that cannot be added has no score. Also the pairs that were refused because of the preserved text, as
    (left, right, count, number of learned tokens before).
    """

def pairs(model: Model, counts: Counts) -> list[tuple[str, str]]:
    """The pairs of neighbouring tokens in the segmentation of counted pretokens, sorted."""

def script_properties() -> list[tuple[str, str]]:
    """The long and the short name of every script that some character has, sorted."""

def of_scripts(characters: str, scripts: list[str]) -> str:
    """The characters of a string that belong to some scripts, by their long names."""

def marks(scripts: list[str]) -> str:
    """The combining marks of scripts by their long names. Marks of all scripts belong to Inherited."""

def documents(block: Block, skip_bad: bool) -> tuple[list[str], int, int]:
    """The documents of a block, how many stretches of them were replaced, and how many documents were skipped."""

def scripts(texts: list[str]) -> list[list[str]]:
    """The Unicode names of the scripts that each text is written in, sorted."""

def give_back_freed() -> None:
    """Gives the system memory that was freed and is kept for later."""
