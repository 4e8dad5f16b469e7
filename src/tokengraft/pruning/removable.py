"""Which tokens may be removed, and which are kept by default: white space, punctuation, source code, chat templates."""

import re
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from importlib import resources

from tokengraft import _core
from tokengraft.counts.count import NO_SCRIPT, letters_of, written_in
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, option
from tokengraft.output.json_file import read_settings
from tokengraft.representation import FrozenDict, frozen_strings, require_fields, set_fields, shown
from tokengraft.tokenizer.kind import CONTINUATION, SPACE, byte_token, processor_steps
from tokengraft.tokenizer.known_tokens import reserved_tokens
from tokengraft.tokenizer.tokenizer import Tokenizer

PLAIN, CODE, CHAT = "white space, digits, punctuation", "source code", "chat template"
"""The reasons, as `PruneOrder.kept` names them."""
_SHORTEST_WORD = 3
"""Letters. Shorter words, such as `fn`, are not protected: many tokens with other uses are equal to them."""
_ROLES = ("system", "user", "assistant", "tool")
_TAG = re.compile(r"\{[{%#]")
_IN_TAG = re.compile(r"""'[^'\\]*(?:\\.[^'\\]*)*'?|"[^"\\]*(?:\\.[^"\\]*)*"?|[{}]|%\}""", re.DOTALL)
_ESCAPE = re.compile(r"""\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([nrt\\'"]))""")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


def default_tokens(tokenizer: Tokenizer) -> Mapping[str, frozenset[int]]:
    """The tokens that are kept by default, by reason. They are decided by their text, not by their string."""
    if not tokenizer.kept_by_default:
        tokenizer.kept_by_default.update(_default_tokens(tokenizer))
    return tokenizer.kept_by_default


def _default_tokens(tokenizer: Tokenizer) -> dict[str, frozenset[int]]:
    model, more, ids = tokenizer.core_model, tokenizer.unlisted, {*tokenizer.ids.values()}
    # What the chat templates can write by themselves, at the beginning of a text and after a line break.
    written = [text for template in chat_templates(tokenizer) for text in (*_ROLES, *template_texts(template))]
    valid = [text.encode(errors="replace").decode() for text in written]  # a template may have half a surrogate pair
    chats = tokenizer.encode_batch([*dict.fromkeys(text for each in valid for text in (each, f"\n{each}"))])
    return {
        PLAIN: frozenset(model.plain_tokens(more)),
        CODE: frozenset(token_id for token_id, _ in model.tokens_of(more, _code_words(), trimmed=True)),
        CHAT: frozenset(token_id for chat in chats for token_id in chat if token_id in ids),
    }


@cache
def _code_words() -> list[str]:
    """Keywords and frequent names of source code."""
    lines = resources.files("tokengraft.pruning").joinpath("code_words.txt").read_text(encoding="utf-8").splitlines()
    words = (word for line in lines if not line.startswith("#") for word in line.split())
    return [word for word in words if len(word) >= _SHORTEST_WORD]


def chat_templates(tokenizer: Tokenizer) -> Iterator[str]:
    """The source of every chat template in the tokenizer's files."""
    for name, raw in tokenizer.files.items():
        if name.endswith(".jinja"):
            yield raw.decode(errors="replace")
    for name in ("tokenizer_config.json", "chat_template.json"):
        template = read_settings(tokenizer.files, name).get("chat_template")
        for item in template if isinstance(template, list) else [template]:
            text = item.get("template") if isinstance(item, dict) else item
            if isinstance(text, str):
                yield text


def template_texts(template: str) -> Iterator[str]:
    """The literal text of a Jinja template: what is outside its tags, and the strings inside them, without escapes.

    The template is only searched, never run, and need not be valid.

    >>> [*template_texts("{# no #}<s>{% if x == 'a' %}{{ '\\\\nuser: ' + x['b'] }}{% endif %} end")]
    ['<s>', 'a', '\\nuser: ', 'b', ' end']
    """
    at = 0
    while tag := _TAG.search(template, at):
        yield from filter(None, [template[at : tag.start()]])
        at = tag.end()
        if tag[0] == "{#":
            end = template.find("#}", at)
            at = len(template) if end < 0 else end + 2
            continue
        depth = 2 if tag[0] == "{{" else 1  # of braces: `{{ {'a': {}} }}` ends with its last two
        for found in _IN_TAG.finditer(template, at):
            at = found.end()
            if found[0][0] in "'\"":
                yield from filter(None, [_ESCAPE.sub(_unescaped, found[0][1:].removesuffix(found[0][0]))])
            elif tag[0] == "{%":
                depth -= found[0] == "%}"
            else:
                depth += 1 if found[0] == "{" else -1
            if not depth:
                break
        else:
            return  # the tag has no end
    yield from filter(None, [template[at:]])


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return chr(int(code, 16)) if code else _ESCAPED.get(escape[3], escape[3])


@shown
@dataclass(frozen=True)
class Protection:
    """What is never removed, and what may be removed although by default it is kept."""

    tokens: Collection[str] = ()
    """Tokens, as strings of the vocabulary or as text. The tokens that they are built from are kept too."""
    pattern: str | None = None
    """A regular expression; a token whose text matches it anywhere is kept, with what it is built from."""
    characters: bool = False
    """Single characters may be removed: where byte fallback can spell them, or those that the text lacks in a model
    without merges."""
    reuse_reserved: bool = False
    """Reserved added tokens that nothing uses, such as ``<unused42>``, may be removed. They are removed first."""
    highest_id: bool = False
    """The token with the highest id is kept, so that the embedding keeps its number of rows if ids do not move."""
    defaults: bool = True
    """Tokens that cleaned text lacks are kept, with what they are built from: those of white space, digits and ASCII
    punctuation, keywords and frequent names of source code, and what chat templates write. False for the order of the
    paper."""

    def __post_init__(self) -> None:
        require_fields(self)
        set_fields(self, frozen_strings, "tokens")
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise OptionError(
                f"{self.pattern!r} is no regular expression: {error}", hint=f"correct {option('protect_pattern')}"
            ) from error


@dataclass(frozen=True)
class Removable:
    """The tokens that may be removed, and why the others may not."""

    ids: frozenset[int]
    reserved: tuple[int, ...]
    """The reserved added tokens among them, highest id first."""
    kept: FrozenDict[str, int]
    """How many tokens are kept, by reason."""


def removable_tokens(tokenizer: Tokenizer, protection: Protection, counts: PretokenCounts | None = None) -> Removable:
    """The tokens of a tokenizer that may be removed.

    Added tokens, the unknown token and atomic tokens (bytes, `<0xNN>`, single characters) are always kept. A model
    without merges may lose characters that the text lacks, of scripts that it is not written in. Reserved tokens that
    occur in the text are kept.
    """
    added_ids = {token.id for token in tokenizer.added}
    reserved = reserved_tokens(tokenizer, counts.added if counts else {}) if protection.reuse_reserved else set()
    reserved &= added_ids  # those of WordPiece are ordinary tokens
    added = added_ids - reserved
    named = {tokenizer.unknown, *named_tokens(tokenizer)}
    added |= {tokenizer.ids[string] for string in named if string is not None and string in tokenizer.ids} - reserved
    if tokenizer.kind == "sentencepiece":
        # Runs of `▁` have equal scores: their merge order stays defined only if all of them are kept.
        added |= {token_id for string, token_id in tokenizer.ids.items() if not string.strip(SPACE)}
    atomic = set(tokenizer.core_model.atomic()) - added
    if tokenizer.algorithm != "BPE":
        added |= {*tokenizer.core_model.must_stay(), *_fixed_by_pieces(tokenizer)}
        atomic -= _foreign_characters(tokenizer, counts, every_script=protection.characters)
    elif protection.characters:
        if not _spells_all_bytes(tokenizer):
            raise OptionError(
                "single characters cannot be removed: the tokenizer has no byte fallback that could spell them",
                hint=f"leave out {option('prune_characters')}",
            )
        atomic -= {i for string, i in tokenizer.vocab.items() if len(string) == 1 and string != SPACE}
    reasons: dict[str, Set[int]] = {
        "added or named": added,
        "atomic": atomic,
        "the only spelling of a character": _only_spelling(tokenizer, counts),
        **(default_tokens(tokenizer) if protection.defaults else {}),
        "protected": _protected(tokenizer, protection),
    }
    # Not `tokenizer.structure`, which would be kept too.
    reasons["parts of those"] = {*tokenizer.core_model.with_parts([*set[int]().union(*reasons.values())])}
    ids, kept = set(tokenizer.ids.values()), dict[str, int]()
    for reason, tokens in reasons.items():
        kept[reason] = len(tokens & ids)
        ids -= tokens
    return Removable(
        ids=frozenset(ids),
        reserved=tuple(sorted(reserved & ids, reverse=True)),
        kept=FrozenDict(kept),
    )


def named_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    """Tokens that settings, special-token maps and post-processors name. Padding may be an ordinary token."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        for key, value in read_settings(tokenizer.files, name).items():
            if key.endswith(("_token", "_tokens")):
                for item in value if isinstance(value, list) else [value]:
                    yield str(item.get("content") if isinstance(item, dict) else item)
    for step in processor_steps(tokenizer.document.get("post_processor")):
        specials = step.get("special_tokens")
        for special in specials.values() if isinstance(specials, dict) else ():
            yield from map(str, special.get("tokens") or ())
        yield from (str(step[name][0]) for name in ("sep", "cls") if isinstance(step.get(name), list))


def _foreign_characters(tokenizer: Tokenizer, counts: PretokenCounts | None, *, every_script: bool) -> set[int]:
    """Single characters that a text lacks, unless they are of a script that it is written in, or of none.

    So text of the same characters never gets a new unknown token: it can be split into them. None, if two files of the
    tokenizer encode unknown characters differently.
    """
    model = tokenizer.piece_model
    if model is not None and model.byte_fallback != tokenizer.byte_fallback:
        if every_script:
            files = [str(tokenizer.piece_file), tokenizer.main][:: 1 if model.byte_fallback else -1]
            raise OptionError(
                f"single characters cannot be removed: `{files[0]}` would encode them as bytes, and `{files[1]}` as "
                "the unknown token",
                hint=f"leave out {option('prune_characters')}, or take one of the two files out of a copy of the "
                "folder",
            )
        return set()
    if counts is None:
        return set()
    present, strings = dict(counts.table.characters()), tokenizer.strings
    single = {i: strings[i].removeprefix(CONTINUATION) or strings[i] for i in tokenizer.core_model.atomic()}
    missing = {i: text for i, text in single.items() if len(text) == 1 and text not in present}
    if every_script:
        return {*missing}
    written = written_in(letters_of(counts)[1]) | NO_SCRIPT
    named = zip(missing, _core.scripts([*missing.values()]), strict=True)
    return {i for i, names in named if written.isdisjoint(names)}


def _fixed_by_pieces(tokenizer: Tokenizer) -> set[int]:
    """Tokens of a Unigram vocabulary that the SentencePiece model beside it does not find in text, or cannot lose.

    It gives unknown characters a score below that of its lowest piece, which may be another than in `tokenizer.json`.
    """
    model = tokenizer.piece_model
    if model is None:
        return set()
    lowest = min(model.normal, key=model.normal.__getitem__, default=None)
    return {i for string, i in tokenizer.vocab.items() if string == lowest or string not in model.normal}


def _only_spelling(tokenizer: Tokenizer, counts: PretokenCounts | None) -> set[int]:
    """Tokens with a character that is no token by itself, where nothing else spells it.

    With merges, these are tokens that only merge skipping produces. Without such a token, its text would be dropped or
    become the unknown token. In a model without merges, other tokens decide whether such a token is found: if it occurs
    in the text, all tokens of the text stay.
    """
    if _spells_all_bytes(tokenizer):
        return set()
    vocab = tokenizer.vocab
    if tokenizer.algorithm != "BPE":
        spelled = _word_characters if tokenizer.algorithm == "WordPiece" else iter
        only = {i for string, i in vocab.items() if any(part not in vocab for part in spelled(string))}
        occurring = counts.tokens(tokenizer).keys() if counts and only else set()
        return only | (set(occurring) if only & occurring - {vocab.get(tokenizer.unknown or "")} else set())
    if not tokenizer.ignore_merges:
        return set()
    unreachable = set(tokenizer.unreachable)
    return {i for string, i in vocab.items() if i in unreachable and any(c not in vocab for c in string)}


def _word_characters(string: str) -> Iterator[str]:
    """The tokens of single characters that spell a token of WordPiece.

    >>> [*_word_characters("abc")], [*_word_characters("##bc")]
    (['a', '##b', '##c'], ['##b', '##c'])
    """
    text = string.removeprefix(CONTINUATION)
    for place, character in enumerate(text):
        yield character if place == 0 and text == string else CONTINUATION + character


def _spells_all_bytes(tokenizer: Tokenizer) -> bool:
    return tokenizer.byte_fallback and all(byte_token(byte) in tokenizer.vocab for byte in range(256))


def _protected(tokenizer: Tokenizer, protection: Protection) -> set[int]:
    highest = {tokenizer.n_rows - 1} if protection.highest_id and tokenizer.n_rows else set[int]()
    if not protection.tokens and not protection.pattern:
        return highest
    model, more, wanted = tokenizer.core_model, tokenizer.unlisted, [*dict.fromkeys(protection.tokens)]
    found = model.tokens_of(more, wanted, trimmed=False)
    found += [(tokenizer.ids[text], place) for place, text in enumerate(wanted) if text in tokenizer.ids]
    missing = {*range(len(wanted))} - {place for _, place in found}
    if missing:
        raise OptionError(
            f"{wanted[min(missing)]!r} is to be protected and is no token",
            hint="write tokens as text, with any leading space",
        )
    protected = {token_id for token_id, _ in found}
    if protection.pattern:
        pattern = re.compile(protection.pattern)
        # Not `tokenizer.tokens`, which would be kept: 85 MB for a vocabulary of 262,144 tokens.
        texts = ((token_id, data.decode(errors="replace")) for token_id, _, data in model.tokens(more))
        protected |= {token_id for token_id, text in texts if pattern.search(text)}
    return highest | protected
