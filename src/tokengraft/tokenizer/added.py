"""Added tokens: from `tokenizer.json` and from the settings files, with the ids that loaders give."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError
from tokengraft.output.json_file import parse_settings
from tokengraft.representation import shown

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
SETTINGS, SPECIAL_MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
LISTING, EXTRA, ADDITIONAL = "added_tokens_decoder", "extra_special_tokens", "additional_special_tokens"
OWN = "model_specific_special_tokens"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SWITCHES = ("add_bos_token", "add_eos_token")

Entry = dict[str, Any]
"""An added token as `tokenizer.json` writes it: content and flags; `id` where a file lists one."""


def settings_entries(files: Mapping[str, bytes], listed: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """The added tokens that transformers adds after those that `tokenizer.json` lists, in its order."""
    settings, specials = _read_both(files)
    arguments = _arguments(settings, specials)
    if LISTING in settings:
        by_id = dict(decoder_entries(settings[LISTING]))
    else:
        by_id = _old_entries(files, arguments, specials)
        by_id |= {entry["id"]: dict(entry) for entry in listed} if by_id else {}
    entries = [entry | {"id": token_id} for token_id, entry in sorted(by_id.items())]
    known = {entry["content"] for entry in (*listed, *entries)}
    named = _named_values(arguments)
    more = map(_entry, _once([*named, *_extra_values(arguments)]).values())
    entries += [entry for entry in more if entry and entry["content"] not in known]
    contents = {entry["content"] for entry in map(_entry, named) if entry}
    for place, entry in enumerate(entries):
        # What a setting names is special; what is special is not normalized by default.
        special = bool(entry.get("special")) or entry["content"] in contents
        flags = dict.fromkeys(FLAGS, False) | {"normalized": not special}
        entries[place] = flags | entry | {"special": special}
    return entries


def new_entry(token_id: int, content: str, *, special: bool = True, normalized: bool = False) -> Entry:
    """The entry of an added token without other flags."""
    flags = dict.fromkeys(FLAGS, False) | {"normalized": normalized, "special": special}
    return {"id": token_id, "content": content, **flags}


def loader_settings(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The settings as transformers merges them: under one name for each idea, whichever file and form they have."""
    return _arguments(*_read_both(files))


def _read_both(files: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of `tokenizer_config.json`, and of `special_tokens_map.json` where transformers reads that.

    The objects in the latter are special tokens.
    """

    def as_special(value: Any) -> Any:
        return {**value, "special": True, "__type": "AddedToken"} if isinstance(value, dict) else value

    settings = parse_settings(files.get(SETTINGS, b"{}"), SETTINGS)
    if LISTING in settings:
        return settings, {}
    content = parse_settings(files.get(SPECIAL_MAP, b"{}"), SPECIAL_MAP)
    specials = {key: value if key == EXTRA else as_special(value) for key, value in content.items()}
    if isinstance(specials.get(EXTRA), list):
        specials[EXTRA] = [as_special(value) for value in specials[EXTRA]]
    return settings, specials


def _arguments(settings: Mapping[str, Any], specials: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as transformers passes them to the constructor of a tokenizer."""
    merged = {key: value for key, value in settings.items() if key not in _SWITCHES}
    if ADDITIONAL in merged and not merged.get(EXTRA):
        merged[EXTRA] = merged.pop(ADDITIONAL)
    texts = [key for key, value in merged.items() if _is_own(key) and isinstance(value, str)]
    own = {key: merged.pop(key) for key in texts}
    own |= merged.pop(EXTRA) if isinstance(merged.get(EXTRA), dict) else {}
    merged |= {OWN: own} if own else {}
    for key, value in specials.items():
        merged[key] = [*(merged.get(EXTRA) or ()), *value] if key == EXTRA and isinstance(value, list) else value
    if isinstance(merged.get(EXTRA), dict):
        merged[OWN] = {**(merged.get(OWN) or {}), **merged.pop(EXTRA)}
    return merged


def _is_own(key: str) -> bool:
    """Whether a setting names a token that only this model has, such as `image_token`."""
    return key.endswith("_token") and key not in _NAMED


def _named_values(arguments: Mapping[str, Any]) -> list[Any]:
    """The tokens that settings name, in the order in which transformers adds them."""

    def is_token(value: Any) -> bool:
        return isinstance(value, str) or (isinstance(value, dict) and value.get("__type") == "AddedToken")

    typed = {key: value for key, value in arguments.items() if _is_own(key) and is_token(value)}
    own = arguments.get(OWN)
    return [*({name: arguments.get(name) for name in _NAMED} | typed | (own if isinstance(own, dict) else {})).values()]


def _extra_values(arguments: Mapping[str, Any]) -> list[Any]:
    extra = arguments.get(EXTRA if EXTRA in arguments else ADDITIONAL)
    return list(extra) if isinstance(extra, list) else []


def _once(values: Iterable[Any]) -> dict[str, Any]:
    """The values without repetitions, each with its JSON text.

    A text and an object that name the same token are two: transformers adds both, and the later one counts.
    """
    return {json.dumps(value, sort_keys=True): value for value in values}


def decoder_entries(listing: Any) -> Iterator[tuple[int, Entry]]:
    """The entries of `added_tokens_decoder` with their ids."""
    if not isinstance(listing, dict):
        raise _refusal("added_tokens_decoder", listing, "an object of ids and tokens")
    for key, value in listing.items():
        if not key.isascii() or not key.isdecimal():
            raise _refusal(f"added_tokens_decoder has the key {key!r}, which", key, "an id")
        entry = _entry(value)
        if not isinstance(value, dict) or entry is None:
            raise _refusal(f"added_tokens_decoder[{key!r}]", value, "an object with `content` and flags")
        yield int(key), entry


def _old_entries(
    files: Mapping[str, bytes], arguments: Mapping[str, Any], specials: Mapping[str, Any]
) -> dict[int, Entry]:
    """The tokens of an `added_tokens.json` by id. Special are those named as text, or by `special_tokens_map.json`."""
    listing = parse_settings(files.get(ADDED, b"{}"), ADDED)
    extra, extra_mapped = (_extra_values({EXTRA: content.get(EXTRA)}) for content in (arguments, specials))
    named = _once([*(arguments.get(name) for name in _NAMED), *extra])
    mapped = _once([*specials.values(), *extra_mapped])
    special = [_entry(value) for key, value in named.items() if isinstance(value, str) or key in mapped]
    texts, entries = {entry["content"] for entry in special if entry}, dict[int, Entry]()
    for content, token_id in listing.items():
        if type(token_id) is not int or token_id < 0:
            raise InvalidTokenizerError(
                f"`{ADDED}` gives {content!r} the id {token_id!r}; expected a whole number from 0 on",
                hint=f"fix the id in `{ADDED}`, or delete the file if tokenizer.json lists all added tokens",
            )
        flags = {"special": content in texts, "normalized": content not in texts}
        entries[token_id] = {"content": _plain(content, ADDED), **flags}
    return entries


def _entry(value: Any) -> Entry | None:
    """The entry of a token given as text, which makes it special, or as an object; None for other values."""
    if isinstance(value, str):
        return {"content": _plain(value, SETTINGS), "special": True}
    if not isinstance(value, dict) or not isinstance(value.get("content", ""), str):
        return None
    flags = {name: value[name] for name in FLAGS if name in value}
    if not {*map(type, flags.values())} <= {bool}:
        raise _refusal("an added token", value, "flags that are true or false")
    return {"content": _plain(value.get("content", ""), SETTINGS), **flags}


def _plain(content: str, name: str) -> str:
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise InvalidTokenizerError(
            f"`{name}` has the token {content!a}, half of a surrogate pair", hint="check what wrote the file"
        ) from error
    return content


def _refusal(what: str, value: Any, expected: str) -> InvalidTokenizerError:
    shown = f"{value!r:.200}"
    return InvalidTokenizerError(
        f"`{SETTINGS}`: {what} is {shown}; expected {expected}",
        hint=f"fix it in `{SETTINGS}`; transformers does not load the folder either",
    )


@shown
class AddedToken(NamedTuple):
    """A token that is split out of the text before BPE, with the id that loaders give it."""

    id: int
    content: str
    special: bool
    normalized: bool
    single_word: bool
    lstrip: bool
    rstrip: bool
    listed_id: int
    """The id the file lists. Loaders ignore it unless the token is in the vocabulary too. The real id where none is
    listed."""


def added_tokens(
    vocabulary: _core.Vocabulary, listed: Sequence[Mapping[str, Any]], files: Mapping[str, bytes]
) -> tuple[AddedToken, ...]:
    """The added tokens by ascending id, with the ids and flags that transformers gives them.

    Those that `tokenizer.json` lists are followed by those that only other files name. A token that is in the
    vocabulary has its id there. Any other gets the next free id, whatever id the file lists. If two files give
    different flags, those of the later one count.
    """
    tokens: dict[str, AddedToken] = {}
    for batch in (listed, settings_entries(files, listed)):
        next_id = max(len(vocabulary), max((token.id for token in tokens.values()), default=-1) + 1)
        for entry in batch:
            content = entry["content"]
            if not content:
                continue  # as upstream
            before = tokens.get(content)
            token_id = before.id if before else vocabulary.id_of(content)
            if token_id is None:
                token_id, next_id = next_id, next_id + 1
            listed_id = before.listed_id if before and batch is not listed else entry.get("id", token_id)
            special, normalized, single_word = entry["special"], entry["normalized"], entry["single_word"]
            strips = entry["lstrip"], entry["rstrip"]
            tokens[content] = AddedToken(token_id, content, special, normalized, single_word, *strips, listed_id)
    return tuple(sorted(tokens.values()))
