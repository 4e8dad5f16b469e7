"""Rewrites the files of a tokenizer after a change of tokens: every place that names a token, a merge or an id.

Chat templates name tokens by their text, which never changes, and are left alone. So are special-token maps, unless
added tokens are new.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokengraft.errors import UnsupportedTokenizerError
from tokengraft.output.json_file import JsonStyle, parse_settings
from tokengraft.tokenizer.added import ADDED, ADDITIONAL, EXTRA, LISTING, SETTINGS, SPECIAL_MAP
from tokengraft.tokenizer.change import Change
from tokengraft.tokenizer.kind import processor_steps
from tokengraft.tokenizer.piece_model import PieceModel, piece_file
from tokengraft.tokenizer.rank_edit import changed_ranks
from tokengraft.tokenizer.rank_file import ENCODING, RankFile, family_encoding, rank_file

ID_FIELD = re.compile(r"(^|_)token_(id|ids|index)$")
"""Fields of settings and configs that hold an id or a list of ids."""
TOKENIZER_JSON, VOCAB_TXT = "tokenizer.json", "vocab.txt"
"""The main file, and the tokens of WordPiece, one on each line, by id."""


def rewrite_document(rest: str, entries: Sequence[Mapping[str, Any]], change: Change) -> str:
    """The text of a `tokenizer.json` without vocabulary and merges, after a change; it lists all added tokens."""
    document: dict[str, Any] = json.loads(rest)
    listed = with_given(entries, change)
    document["added_tokens"] = [{**entry, "id": change.ids[entry["content"]]} for entry in listed]
    if (unknown := document["model"].get("unk_id")) is not None:
        document["model"]["unk_id"] = change.moved.get(unknown)
    document |= renumbered(rest, change.ids)
    if isinstance(document.get("padding"), dict) and (pad := change.roles.get("pad_token")) is not None:
        document["padding"] |= {"pad_token": pad, "pad_id": change.ids[pad]}
    return json.dumps(document, ensure_ascii=False)


def with_given(entries: Iterable[Mapping[str, Any]], change: Change) -> list[dict[str, Any]]:
    """Entries of added tokens after a change: new ones are in the place of those that they replace, or at the end."""
    named = {entry["content"]: dict(entry) for entry in entries}
    new = {content: {"content": content, **flags} for content, flags in change.given.items()}
    placed = {change.renamed.get(content, content): entry for content, entry in named.items()}
    return [new.get(content, entry) for content, entry in {**placed, **new}.items() if content in change.ids]


def renumbered(rest: str, ids: Mapping[str, int]) -> dict[str, Any]:
    """The parts of a `tokenizer.json` that list tokens with ids (post-processor, padding), with these ids."""
    document: dict[str, Any] = json.loads(rest)
    parts: dict[str, Any] = {name: document[name] for name in ("post_processor", "padding") if name in document}
    for step in processor_steps(parts.get("post_processor")):
        for special in (step.get("special_tokens") or {}).values() if step.get("type") == "TemplateProcessing" else ():
            pairs = zip(special["tokens"], special["ids"], strict=False)
            special["ids"] = [ids.get(token, token_id) for token, token_id in pairs]
        for name in ("sep", "cls"):
            if isinstance(step.get(name), list) and step[name][0] in ids:
                step[name][1] = ids[step[name][0]]
    padding = parts.get("padding")
    if isinstance(padding, dict) and padding.get("pad_token") in ids:
        padding["pad_id"] = ids[padding["pad_token"]]
    return parts


def stale_files(files: Mapping[str, bytes]) -> list[str]:
    """Files that list the old tokens in a format other than a SentencePiece model.

    A changed tokenizer leaves them out, except for a rank file that can express the change.
    """
    model = piece_file(files)
    last_parts = {name: name.rpartition("/")[2] for name in files if name != model}
    return sorted(
        name
        for name, last in last_parts.items()
        if last in ("tekken.json", ENCODING)
        or last.startswith("tokenizer.model")
        or last.endswith((".tiktoken", ".model"))
    )


def rewrite_files(
    files: Mapping[str, bytes], change: Change, merges: Callable[[], list[tuple[str, str]]], *, main: str | None = None
) -> Iterator[tuple[str, bytes]]:
    """The other files of a tokenizer after a change, without those that cannot express it; an error for ``main``.

    ``merges`` gives the merges after the change. It is called only where a file lists them.
    """
    model, stale = piece_file(files), stale_files(files)
    yield from _rewritten_rank_files(files, change, main)
    for name, raw in files.items():
        if name in stale:
            continue
        if name == model:
            yield name, PieceModel.read(raw, name).changed(change, alone=name == main).write()
        elif name == VOCAB_TXT:
            yield name, _vocab_txt(raw, change)
        elif name == "merges.txt":
            lines = [line for line in raw.decode(errors="replace").splitlines()[:1] if line.startswith("#version")]
            lines += (f"{left} {right}" for left, right in merges())
            yield name, "".join(f"{line}\n" for line in lines).encode()
        else:
            yield name, _rewritten_json(name, raw, change)


def _rewritten_rank_files(files: Mapping[str, bytes], change: Change, main: str | None) -> Iterator[tuple[str, bytes]]:
    """The rank file after a change, with the file that has its pattern; nothing if it cannot express the change."""
    name = rank_file(files)
    if name is None:
        return
    try:
        rewritten = changed_ranks(files, name, change).write()
    except UnsupportedTokenizerError:
        if name == main:
            raise
        return
    # Llama-3 may be in a folder twice: as `tokenizer.model` and as `original/tokenizer.model`.
    yield from ((twin, rewritten) for twin in files if files[twin] == files[name])
    raw = files.get(ENCODING)
    if raw is None and name == main and (encoding := family_encoding(RankFile.read(files[name], name).sha256)):
        raw = JsonStyle().dump(encoding.as_dict())  # by its ranks, the file is no longer known
    if raw is not None:
        yield ENCODING, _rewritten_json(ENCODING, raw, change)


def _vocab_txt(raw: bytes, change: Change) -> bytes:
    """The tokens of WordPiece, a line each. Added tokens that the file does not list stay outside of it."""
    listed = {line.removesuffix("\r") for line in raw.decode(errors="replace").split("\n")}
    listed |= change.new.keys() | {new for old, new in change.renamed.items() if old in listed}
    tokens = sorted((token for token in change.ids if token in listed), key=change.ids.__getitem__)
    return "".join(f"{token}\n" for token in tokens).encode()


def _rewritten_json(name: str, raw: bytes, change: Change) -> bytes:
    """A JSON file that lists tokens or ids, after a change. Its bytes stay if nothing in it changes."""
    if name not in _JSON_FILES or (name == SPECIAL_MAP and not (change.given or change.roles)):
        return raw
    content = parse_settings(raw, name)
    changed = _JSON_FILES[name](content, change)
    return raw if changed == content else JsonStyle.of(raw).dump(changed)


def _vocab_json(content: dict[str, Any], change: Change) -> dict[str, Any]:
    named = (change.renamed.get(token, token) for token in content)
    kept = {token: change.ids[token] for token in named if token in change.ids}
    return dict(sorted((kept | change.new).items(), key=lambda item: item[1]))


def _added_json(content: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Added tokens with their ids: new ones are in the place of those that they replace, or at the end."""
    named = (change.renamed.get(token, token) for token in content)
    return {token: change.ids[token] for token in (*named, *_appended(change)) if token in change.ids}


def _encoding(content: dict[str, Any], change: Change) -> dict[str, Any]:
    """The file beside a tiktoken file. Special tokens in a list have no ids: they follow from the number of ranks."""
    listed = content.get("special_tokens", {})
    named = [change.renamed.get(token, token) for token in listed if isinstance(token, str)]
    specials = _added_json(listed, change) if isinstance(listed, dict) else [*named, *_appended(change)]
    return content | ({"special_tokens": specials} if specials or listed else {})


def _appended(change: Change) -> list[str]:
    """The new added tokens that replace no other."""
    return [token for token in change.given if token not in change.renamed.values()]


def _settings(content: dict[str, Any], change: Change) -> dict[str, Any]:
    gone, listed = {*change.gone.values()}, content.get(LISTING)
    changed = {key: _new_id(value, change, gone) if ID_FIELD.search(key) else value for key, value in content.items()}
    if isinstance(listed, dict):
        entries = with_given((e for e in listed.values() if isinstance(e, dict) and "content" in e), change)
        changed[LISTING] = {str(change.ids[entry["content"]]): entry for entry in entries}
    return _named(changed, change)


def _named(content: dict[str, Any], change: Change) -> dict[str, Any]:
    """Settings that name new added tokens as special, under other names if they replace others, and have new roles."""
    special = [token for token, flags in change.given.items() if flags["special"]]
    key = EXTRA if isinstance(content.get(EXTRA), list) else ADDITIONAL
    listed = content.get(key, [])
    if special and isinstance(listed, list) and not isinstance(content.get(EXTRA), dict):
        texts = [str(one.get("content") if isinstance(one, dict) else one) for one in listed]
        named = [change.renamed.get(text, one) for text, one in zip(texts, listed, strict=True)]
        content = content | {key: [*named, *(token for token in special if token not in named)]}
    ids = {f"{role}_id": change.ids[text] for role, text in change.roles.items() if f"{role}_id" in content}
    lists = {name: [i, *content[name]] for name, i in ids.items() if isinstance(content[name], list)}
    return content | dict(change.roles) | ids | lists


def _new_id(value: Any, change: Change, gone: Collection[int]) -> Any:
    """An id after a change: None if its token was removed, unchanged if no token has it."""
    if isinstance(value, list):
        return [_new_id(one, change, gone) for one in value if type(one) is not int or one not in gone]
    if type(value) is not int:
        return value
    return None if value in gone else change.moved.get(value, value)


_JSON_FILES: Mapping[str, Callable[[dict[str, Any], Change], dict[str, Any]]] = {
    "vocab.json": _vocab_json,
    ADDED: _added_json,
    SETTINGS: _settings,
    SPECIAL_MAP: _named,
    ENCODING: _encoding,
}
"""What is rewritten in JSON files that list tokens or ids."""
