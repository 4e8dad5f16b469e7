"""Added tokens that files beside `tokenizer.json` name, as transformers adds them when it loads a folder.

transformers reads `tokenizer.json` first. Then it adds, in one batch and in this order:

1. the entries of `added_tokens_decoder` in `tokenizer_config.json`, by ascending id. Where a token has other flags in
   `tokenizer.json`, these flags replace them;
2. the tokens that settings name (`bos_token`, `image_token`, ...) and nothing lists;
3. the tokens of `extra_special_tokens`, formerly `additional_special_tokens`, that nothing lists.

A folder without `added_tokens_decoder` is an old one: its `added_tokens.json` and the entries of `tokenizer.json` stand
in for the first step, and its `special_tokens_map.json` overrides the settings. Checked against transformers 5.22.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokengraft.errors import InvalidTokenizerError
from tokengraft.output.json_file import parse_settings

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
SETTINGS, SPECIAL_MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

Entry = dict[str, Any]
"""An added token as `tokenizer.json` writes it: content and flags; `id` where a file lists one."""


def settings_entries(files: Mapping[str, bytes], listed: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """The added tokens that transformers adds after those of `tokenizer.json`, in its order.

    Args:
        files: The files of the folder other than `tokenizer.json`, by name.
        listed: The entries of `added_tokens` in `tokenizer.json`.

    Raises:
        UnreadableFileError: A file is not JSON, or not an object.
        InvalidTokenizerError: A file lists a token in a form that no loader reads.
    """
    settings = _read(files, SETTINGS)
    specials = {} if "added_tokens_decoder" in settings else _read(files, SPECIAL_MAP)
    names, extra = _named_tokens(settings, specials), _extra_tokens(settings, specials)
    if "added_tokens_decoder" in settings:
        by_id = dict(_decoder_entries(settings["added_tokens_decoder"]))
    else:
        by_id = dict(_old_entries(_read(files, ADDED), {entry["content"] for entry in (*names, *extra)}))
        by_id |= {entry["id"]: dict(entry) for entry in listed} if by_id else {}
    entries = [entry | {"id": token_id} for token_id, entry in sorted(by_id.items())]
    known = {entry["content"] for entry in (*listed, *entries)}
    for entry in (*names, *extra):
        if entry["content"] not in known:
            entries.append(entry)
            known.add(entry["content"])
    named = {entry["content"] for entry in names}
    return [_complete(entry, named) for entry in entries]


def _read(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    return parse_settings(files[name], name) if name in files else {}


def _decoder_entries(listing: Any) -> Iterator[tuple[int, Entry]]:
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


def _old_entries(listing: Mapping[str, Any], special: set[str]) -> Iterator[tuple[int, Entry]]:
    """The tokens of an `added_tokens.json` with their ids."""
    for content, token_id in listing.items():
        if type(token_id) is not int or token_id < 0:
            raise InvalidTokenizerError(
                f"`{ADDED}` gives {content!r} the id {token_id!r}; expected a whole number from 0 on",
                hint=f"fix the id in `{ADDED}`, or delete the file if tokenizer.json lists all added tokens",
            )
        yield token_id, {"content": _plain(content, ADDED), "special": content in special}


def _named_tokens(settings: Mapping[str, Any], specials: Mapping[str, Any]) -> list[Entry]:
    """The tokens that settings name, each by a key that ends in `_token`, in the order in which they are added."""
    both = {**settings, **specials}
    more = [both.get("extra_special_tokens"), settings.get("extra_special_tokens")]
    groups = next((group for group in more if isinstance(group, dict)), {})
    others = [key for key in (*specials, *settings) if key.endswith("_token") and key not in _NAMED]
    values = [both.get(key) for key in (*_NAMED, *dict.fromkeys(others))] + list(groups.values())
    return [entry | {"special": True} for entry in map(_entry, values) if entry]


def _extra_tokens(settings: Mapping[str, Any], specials: Mapping[str, Any]) -> list[Entry]:
    """The tokens of `extra_special_tokens` where it is a list, or else of `additional_special_tokens`."""
    extra = settings.get("extra_special_tokens")
    own = extra if isinstance(extra, list) and extra else settings.get("additional_special_tokens")
    lists = [own, specials.get("extra_special_tokens"), None if own else specials.get("additional_special_tokens")]
    values = [value for group in lists if isinstance(group, list) for value in group]
    return [entry for entry in map(_entry, values) if entry]


def _entry(value: Any) -> Entry | None:
    """A token given as its text, then special, or as an object; None for what names no token."""
    if isinstance(value, str):
        return {"content": _plain(value, SETTINGS), "special": True}
    if not isinstance(value, dict) or not isinstance(value.get("content", ""), str):
        return None
    flags = {name: value[name] for name in FLAGS if name in value}
    if any(type(flag) is not bool for flag in flags.values()):
        raise _refusal("an added token", value, "flags that are true or false")
    return {"content": _plain(value.get("content", ""), SETTINGS), **flags}


def _complete(entry: Entry, named: set[str]) -> Entry:
    """The entry with every flag. What a setting names is special; what is special is not normalized by default."""
    special = bool(entry.get("special")) or entry["content"] in named
    defaults = dict.fromkeys(FLAGS, False) | {"normalized": not special}
    return defaults | entry | {"special": special}


def _plain(content: str, name: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in content):
        raise InvalidTokenizerError(
            f"`{name}` has the token {content!a}, half of a surrogate pair", hint="check what wrote the file"
        )
    return content


def _refusal(what: str, value: Any, expected: str) -> InvalidTokenizerError:
    shown = f"{value!r:.200}"
    return InvalidTokenizerError(
        f"`{SETTINGS}`: {what} is {shown}; expected {expected}",
        hint=f"fix it in `{SETTINGS}`; transformers does not load the folder either",
    )
