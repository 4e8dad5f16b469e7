"""`convert`: a tokenizer in another file format, if that format can express it exactly.

Rank files (tiktoken, tekken) have no list of merges: two neighbours merge if their product has a rank. A tokenizer fits
if each of its tokens is made by the same pair under that rule, and in the order of the ids (`merge_differences`).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal, NoReturn, get_args

from tokengraft.errors import OptionError, UnsupportedTokenizerError, option, require_type
from tokengraft.formats.agreement import merge_differences, split_differences
from tokengraft.formats.vocabulary_files import (
    NOTHING_GIVEN,
    Given,
    read_piece_model,
    read_ranks,
    require_same_meaning,
    split_pattern,
)
from tokengraft.output.json_file import JsonStyle
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.added import SETTINGS
from tokengraft.tokenizer.kind import BYTE_OF, CHARACTER_OF, SPACE, byte_token, pipeline_steps
from tokengraft.tokenizer.piece_model import BYTE, CONTROL, NAMES, NORMAL, UNKNOWN, USER_DEFINED, new_model, placeholder
from tokengraft.tokenizer.rank_file import PATTERNS, Format, RankFile
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON, stale_files
from tokengraft.tokenizer.tokenizer import Tokenizer

FileFormat = Literal["huggingface", "tiktoken", "tekken", "sentencepiece"]
TARGETS: tuple[FileFormat, ...] = get_args(FileFormat)
_STAY = "use it in the format that it has"
_FILES: Mapping[Format, str] = {"tiktoken": "tokenizer.tiktoken", "tekken": "tekken.json"}


def convert(tokenizer: Tokenizer, to: FileFormat, *, renumber: bool = False) -> Tokenizer:
    """The tokenizer in another file format, which `save` then writes.

    It encodes every text to the same tokens, or the conversion is refused. Settings files and chat templates are kept
    only for `huggingface`.

    Args:
        tokenizer: The tokenizer. It is not changed.
        to: `huggingface` (`tokenizer.json`), `tiktoken`, `tekken` (Mistral's `tekken.json`) or `sentencepiece`.
        renumber: For the rank formats, where ids are priorities: give tokens new ids in the order in which they merge,
            and special tokens the ids that the format has for them.

    Raises:
        OptionError: There is no such format, or ``renumber`` is for another one.
        UnsupportedTokenizerError: The format cannot express the tokenizer. The message says why.

    Examples:
        >>> tok = tg.load("model")
        >>> ranks = tg.convert(tok, "tiktoken")
        >>> ranks.main, ranks.encode("the cat") == tok.encode("the cat")
        ('tokenizer.tiktoken', True)
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    if to not in TARGETS:
        raise OptionError(f"there is no format {to!r}", hint=f"take one of {', '.join(TARGETS)}")
    if to in ("huggingface", "sentencepiece") and renumber:
        raise OptionError(
            f"{option('renumber')} is for tiktoken and tekken, not for {to}", hint=f"drop {option('renumber')}"
        )
    file, plain = tokenizer.piece_file, _huggingface(tokenizer)
    if to == "huggingface":
        return plain
    if to == "sentencepiece":
        if file is None:
            return _as_piece_model(tokenizer)
        return read_piece_model({file: tokenizer.files[file]}, file)
    if not renumber and tokenizer.rank_file and tokenizer.ranks and tokenizer.ranks.format == to:
        return _ranks_alone(tokenizer, tokenizer.rank_file)
    _require_rank_pipeline(plain, to)
    if renumber:
        specials = [token.content for token in plain.added]
        learned = _by_priority(plain, {*specials})
        if to == "tekken":  # special tokens first, then the bytes in their order
            ordered = [
                *specials,
                *(CHARACTER_OF[byte] for byte in range(256)),
                *(token for token in learned if len(token) > 1),
            ]
        else:
            ordered = [*learned, *specials]
        plain = plain.edited({token: place for place, token in enumerate(ordered)})
    return _in_ranks(plain, to)


def _huggingface(tokenizer: Tokenizer) -> Tokenizer:
    dropped = {*stale_files(tokenizer.files), tokenizer.piece_file}
    files = {name: raw for name, raw in tokenizer.files.items() if name not in dropped}
    files.setdefault(SETTINGS, JsonStyle().dump({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return replace(tokenizer, main=TOKENIZER_JSON, files=FrozenDict(files))


def _ranks_alone(tokenizer: Tokenizer, file: str) -> Tokenizer:
    """The rank file beside a `tokenizer.json`; `load` has proven that the two agree."""
    if tokenizer.main == file:
        return tokenizer
    if tokenizer.ranks and tokenizer.ranks.format == "tekken":
        ranks = read_ranks({file: tokenizer.files[file]}, file)
        # Folders with other texts are published and loaded: mistral-common does not search for special tokens in text.
        for token in ranks.added:
            other = tokenizer.strings.get(token.id)
            if other != token.content:
                _refuse(
                    "tekken",
                    f"the special token {token.id:,} is {token.content!r} in `{file}` and {other!r} in "
                    f"`{tokenizer.main}`",
                    f"copy `{file}`, which has the same tokens otherwise; or convert a copy of the folder without it",
                )
        return ranks
    return _in_ranks(_huggingface(tokenizer), "tiktoken")


_STEPS = "text is split by the matches of one pattern there, without a normalizer or a space in front"


def _require_rank_pipeline(tokenizer: Tokenizer, to: FileFormat) -> None:
    """Refuses pipelines that tiktoken does not have."""
    if tokenizer.kind != "byte-level":
        _refuse(to, "its tokens are made of characters, with single bytes as a fallback, and ranks are of bytes")
    pattern = split_pattern(tokenizer)
    steps = pipeline_steps(tokenizer.document)
    if pattern is None:
        _refuse(to, f"its pipeline is {', '.join(step['type'] for step in steps)}, and {_STEPS}")
    if steps[0].get("behavior") == "Isolated" and pattern not in PATTERNS.values():
        _refuse(
            to,
            f"its pattern {pattern!r} is none of those known to match all text ({', '.join(PATTERNS)}), and tiktoken "
            "drops what is not matched",
            "if the pattern matches all text, write the Split step with `behavior` Removed and `invert` true",
        )
    require_same_meaning(pattern, to)
    flags = ("lstrip", "rstrip", "single_word")
    odd = next((token.content for token in tokenizer.added if any(getattr(token, flag) for flag in flags)), None)
    if odd is not None:
        _refuse(to, f"the added token {odd!r} takes white space along or must be a whole word")


def _in_ranks(tokenizer: Tokenizer, to: Format) -> Tokenizer:
    """The tokenizer as a rank file, with the ids that it has."""
    specials = {token.content: token.id for token in tokenizer.added}
    learned = {token: token_id for token, token_id in tokenizer.vocab.items() if token not in specials}
    learned = dict(sorted(learned.items(), key=lambda item: item[1]))
    missing = next((byte for byte, character in CHARACTER_OF.items() if character not in learned), None)
    if missing is not None:
        _refuse(to, f"it has no token for the byte 0x{missing:02X}")
    unspelled = next((token for token in learned if not BYTE_OF.keys() >= {*token}), None)
    if unspelled is not None:
        _refuse(to, f"the token {unspelled!r} is not spelled in bytes")
    ranks = _rank_file(tokenizer, to, learned, specials)
    difference = next(merge_differences(tokenizer, ranks), None)
    if difference is not None:
        _refuse(to, difference, f"{_STAY}; if only the order of the ids differs, pass {option('renumber')}")
    ordered = sorted(specials, key=specials.__getitem__)
    after = [specials[text] for text in ordered] == [*range(ranks.end, ranks.end + len(ordered))]
    given = Given(split_pattern(tokenizer), ordered if after else specials) if to == "tiktoken" else NOTHING_GIVEN
    return read_ranks({_FILES[to]: ranks.write()}, _FILES[to], given=given)


def _rank_file(tokenizer: Tokenizer, to: Format, learned: Mapping[str, int], specials: Mapping[str, int]) -> RankFile:
    end = max(learned.values()) + 1
    if to == "tiktoken":
        return RankFile(FrozenDict(learned), end)
    first = len(specials)
    in_place = [*learned][:256] == [CHARACTER_OF[byte] for byte in range(256)]
    if sorted(specials.values()) != [*range(first)] or min(learned.values()) != first or not in_place:
        _refuse(
            to, "ids do not begin with the special tokens, then the 256 bytes in order", f"pass {option('renumber')}"
        )
    by_id = sorted(specials, key=specials.__getitem__)
    header = {
        "config": {
            "pattern": split_pattern(tokenizer),
            "num_vocab_tokens": 0,
            "default_vocab_size": 0,
            "default_num_special_tokens": first,
            "version": "v3",
        },
        "vocab": None,
        "special_tokens": [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(by_id)],
    }
    return RankFile(FrozenDict(learned), end, first, FrozenDict(header), JsonStyle(ascii_only=True), is_filled=True)


def _by_priority(tokenizer: Tokenizer, others: Collection[str]) -> list[str]:
    """Tokens in the order in which they merge, single characters first, without ``others``.

    A token that merges do not make stays behind the one before it.
    """
    places = {pair: place for place, pair in enumerate(tokenizer.merges)}
    splits, keys, last = tokenizer.structure.splits, dict[str, tuple[int, int]](), -1
    for token in tokenizer.tokens:
        if token.string not in others:
            last = places[splits[token.id]] if token.id in splits else last
            keys[token.string] = (-1 if len(token.string) == 1 else last, token.id)
    return sorted(keys, key=keys.__getitem__)


def _as_piece_model(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer as a SentencePiece model: a piece for every token, scored in the order in which they merge.

    The rules of the trainer are Llama's, which tokengraft assumes for a `tokenizer.json` too.
    """
    to: FileFormat = "sentencepiece"
    if tokenizer.algorithm != "BPE":
        _refuse(to, f"it is {tokenizer.algorithm}, and only BPE is converted")
    if tokenizer.kind != "sentencepiece":
        _refuse(to, "its tokens are made of bytes, and pieces of SentencePiece of characters")
    unknown = tokenizer.model.get("unk_token")
    if unknown not in tokenizer.ids or not tokenizer.model.get("fuse_unk"):
        _refuse(to, "it has no unknown token whose repetitions are one token, as SentencePiece needs")
    steps = pipeline_steps(tokenizer.document)
    prepends = {"type": "Prepend", "prepend": SPACE}
    replaces: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": False}
    if steps not in ([prepends, replaces], [replaces], [metaspace]):
        # A Metaspace step that prepends does so only where text does not begin with a space.
        reason = f"its pipeline is {', '.join(map(str, steps))}; SentencePiece writes spaces as `{SPACE}`, with or "
        _refuse(to, reason + "without one more in front of every text")
    strings, kinds = tokenizer.strings, dict.fromkeys(tokenizer.ids, NORMAL)
    kinds |= {byte_token(byte): BYTE for byte in range(256) if tokenizer.byte_fallback and byte_token(byte) in kinds}
    kinds |= {token.content: CONTROL if token.special else USER_DEFINED for token in tokenizer.added}
    kinds[str(unknown)] = UNKNOWN
    order = _by_priority(tokenizer, {string for string, kind in kinds.items() if kind != NORMAL})
    scores = {string: -1.0 - place for place, string in enumerate(order)}
    pieces = [
        (strings[i], scores.get(strings[i], 0.0), kinds[strings[i]]) if i in strings else placeholder(i)[:3]
        for i in range(tokenizer.n_rows)
    ]
    model = new_model(pieces, byte_fallback=tokenizer.byte_fallback, add_dummy_prefix=prepends in steps)
    converted = read_piece_model({NAMES[0]: model.write()}, NAMES[0])
    difference = next(split_differences(tokenizer, converted), None)
    if difference is not None:
        _refuse(to, difference)
    return converted


def _refuse(to: FileFormat, reason: str, hint: str = _STAY) -> NoReturn:
    raise UnsupportedTokenizerError(f"the tokenizer cannot be written as {to}: {reason}", hint=hint)
