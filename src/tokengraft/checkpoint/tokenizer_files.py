"""The tokenizer files of a new checkpoint: those of the new tokenizer, and further ones of the source.

A tokenizer may be a `tokenizer.json` alone. The chat template and the settings of the source are then kept, rewritten
for the new ids. Files that list the old tokens in a format that tokengraft cannot write are left out and reported.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokengraft.checkpoint.ids import parse_config, renumber_config
from tokengraft.errors import CheckpointError
from tokengraft.formats.files import MAIN, folder_files
from tokengraft.plan import VocabPlan
from tokengraft.tokenizer.rewrite import Change, rewrite_files, stale_files
from tokengraft.tokenizer.tokenizer import Tokenizer

SETTINGS = "tokenizer_config.json"
SPECIALS = "special_tokens_map.json"


@dataclass(frozen=True)
class TokenizerFiles:
    """The tokenizer files to write, and those of the source that are kept or left out."""

    written: Mapping[str, bytes]
    """The content of every file, by relative path."""
    carried: tuple[str, ...]
    """Those of them that the source has and the new tokenizer does not."""
    left_out: tuple[str, ...]
    """Files of the source that cannot be rewritten for the new tokens."""


def tokenizer_files(old: Tokenizer, new: Tokenizer, changes: VocabPlan, rows: tuple[int, int]) -> TokenizerFiles:
    """The tokenizer files of a checkpoint whose tokenizer ``old`` is replaced by ``new``.

    Args:
        old: The tokenizer of the source, with its files.
        new: The new tokenizer.
        changes: The plan from one to the other.
        rows: Rows of the embedding before and after.

    Raises:
        CheckpointError: A file names a token that was removed.
        UnreadableFileError: A file of the source is damaged.
    """
    brought = folder_files(new)
    missing = {name for name in (old.main, *old.files) if name not in brought}
    left_out = {*_unfit(old, new, missing, brought)}
    kept = {name: raw for name, raw in old.files.items() if name in missing - left_out}
    renumber_config(_content(kept, SETTINGS), changes, rows, SETTINGS)  # refuses the id of a removed token
    written = {**brought, **_rewritten(kept, old, new)}
    _require_tokens(old, new, changes, written)
    return TokenizerFiles(written, tuple(sorted(kept)), tuple(sorted(left_out)))


def _rewritten(kept: Mapping[str, bytes], old: Tokenizer, new: Tokenizer) -> dict[str, bytes]:
    merges = new.merge_strings() if "merges.txt" in kept else []
    return dict(rewrite_files(kept, _change(old, new), merges)) if kept else {}


def _unfit(old: Tokenizer, new: Tokenizer, missing: Iterable[str], brought: Mapping[str, bytes]) -> Iterator[str]:
    """Files that list tokens in a format that cannot be written, or that conflict with files of the new tokenizer."""
    lists = {MAIN, "vocab.txt", old.piece_file, *stale_files(old.files)}
    if old.kind != new.kind:  # another alphabet, and another class
        lists |= {SETTINGS, "vocab.json", "merges.txt", "added_tokens.json"}
    has_template = any(map(_is_template, brought)) or bool(_content(brought, SETTINGS).get("chat_template"))
    for name in missing:
        if name in lists or (has_template and _is_template(name)):
            yield name


def _is_template(name: str) -> bool:
    return name.startswith(("chat_template.", "additional_chat_templates/"))


def _change(old: Tokenizer, new: Tokenizer) -> Change:
    return Change(
        ids=new.ids,
        new=dict(sorted((item for item in new.ids.items() if item[0] not in old.ids), key=lambda item: item[1])),
        moved={token_id: new.ids[string] for string, token_id in old.ids.items() if string in new.ids},
        gone={string: token_id for string, token_id in old.ids.items() if string not in new.ids},
        specials={token.id: (token.content, token.special) for token in new.added},
    )


def _require_tokens(old: Tokenizer, new: Tokenizer, changes: VocabPlan, written: Mapping[str, bytes]) -> None:
    """Refuses settings that name a token that the old tokenizer has and the new one does not."""
    before = _content(old.files, SETTINGS)
    for file in (SETTINGS, SPECIALS):
        for field, value in _content(written, file).items():
            removed = [text for text in _texts(field, value) if text in old.ids and text not in new.ids]
            # A tokenizer that another tool wrote may still have the id of a removed token.
            stale = field.endswith("_token_id") and value == before.get(field) and value in changes.removed
            if removed or stale:
                raise CheckpointError(
                    f"`{field}` in `{file}` is {removed[0] if removed else value!r}, a token that the new tokenizer "
                    "does not have",
                    hint="protect that token when you prune: --protect",
                )


def _content(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    content = parse_config(files[name], name) if name in files else None
    return content if isinstance(content, dict) else {}


def _texts(field: str, value: Any) -> Iterator[str]:
    """The tokens that a field such as `eos_token` names: as text, as an object, or as a list of these."""
    if not field.endswith(("_token", "_special_tokens")):
        return
    for item in value if isinstance(value, list) else [value]:
        text = item.get("content") if isinstance(item, dict) else item
        if isinstance(text, str):
            yield text
