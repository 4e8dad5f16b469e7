"""Rewrites the files of a tokenizer after a change of tokens: every place that names a token, a merge or an id.

Chat templates and special-token maps name tokens by their text, which never changes, and are left alone.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

from tokengraft.errors import UnsupportedTokenizerError
from tokengraft.output.json_file import JsonStyle, parse_settings
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.added import AddedToken
from tokengraft.tokenizer.encodings import ENCODING, family_encoding, known_encoding
from tokengraft.tokenizer.kind import processor_steps
from tokengraft.tokenizer.piece_model import PieceModel, piece_file
from tokengraft.tokenizer.rank_file import RankFile, rank_file

ID_FIELD = re.compile(r"(^|_)token_(id|ids|index)$")
"""Fields of settings and configs that hold an id or a list of ids."""
VOCAB_TXT = "vocab.txt"
"""The tokens of WordPiece, one on each line, by id."""


@dataclass(frozen=True)
class Change:
    """The tokens of a tokenizer after a change, and how they differ from those before."""

    ids: Mapping[str, int]
    """All tokens after the change, with their ids."""
    new: Mapping[str, int]
    """New tokens, in the order they were learned."""
    moved: Mapping[int, int]
    """Kept tokens: the id before, and the id after."""
    gone: Mapping[str, int]
    """Removed tokens, with the ids they had."""
    specials: Mapping[int, tuple[str, bool]]
    """Added tokens by their new id: the text, and whether the token is special."""
    scores: Mapping[str, float]
    """Unigram: the scores of the new tokens."""

    @property
    def replaced(self) -> dict[str, str]:
        """Removed tokens, each with the new token that has its id, if no kept token has another id than before."""
        if any(before != after for before, after in self.moved.items()):
            return {}
        new = {token_id: token for token, token_id in self.new.items()}
        return {string: new[token_id] for string, token_id in self.gone.items() if token_id in new}

    @classmethod
    def of(
        cls,
        before: Mapping[str, int],
        after: Mapping[str, int],
        added: Iterable[AddedToken],
        learned: Iterable[str] | None = None,
        scores: Mapping[str, float] | None = None,
    ) -> "Change":
        """The change between two sets of tokens with their ids.

        ``added`` are the added tokens. ``learned`` are the new ones in the order they were learned; by default by id.
        """
        if learned is None:
            learned = sorted((token for token in after if token not in before), key=after.__getitem__)
        return cls(
            ids=after,
            new={token: after[token] for token in learned},
            moved={token_id: after[string] for string, token_id in before.items() if string in after},
            gone={string: token_id for string, token_id in before.items() if string not in after},
            specials={after[t.content]: (t.content, t.special) for t in added if t.content in after},
            scores=scores or {},
        )


def rewrite_document(rest: str, entries: Sequence[Mapping[str, Any]], change: Change) -> str:
    """The text of a `tokenizer.json` without vocabulary and merges, after a change; it lists all added tokens."""
    document: dict[str, Any] = json.loads(rest)
    kept = [entry for entry in entries if entry["content"] in change.ids]
    document["added_tokens"] = [{**entry, "id": change.ids[entry["content"]]} for entry in kept]
    if (unknown := document["model"].get("unk_id")) is not None:
        document["model"]["unk_id"] = change.moved.get(unknown)
    return json.dumps(document | renumbered(rest, change.ids), ensure_ascii=False)


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
            pieces = PieceModel.read(raw, name)
            if pieces.is_unigram:
                pieces = pieces.rescored(change.scores, change.replaced, change.gone, change.ids, change.specials)
            else:
                pieces = pieces.rewritten(change.new, change.moved, change.specials)
            yield name, pieces.write()
        elif name == VOCAB_TXT:
            # Added tokens that the file does not list stay outside of it.
            listed = {line.removesuffix("\r") for line in raw.decode(errors="replace").split("\n")}
            listed |= change.new.keys()
            tokens = sorted((token for token in change.ids if token in listed), key=change.ids.__getitem__)
            yield name, "".join(f"{token}\n" for token in tokens).encode()
        elif name == "merges.txt":
            lines = [line for line in raw.decode(errors="replace").splitlines()[:1] if line.startswith("#version")]
            lines += (f"{left} {right}" for left, right in merges())
            yield name, "".join(f"{line}\n" for line in lines).encode()
        elif name in ("vocab.json", "added_tokens.json", "tokenizer_config.json"):
            yield name, _rewritten_json(name, raw, change)
        else:
            yield name, raw


def _rewritten_json(name: str, raw: bytes, change: Change) -> bytes:
    """A JSON file that lists tokens or ids, after a change. Its bytes stay if nothing in it changes."""
    content = parse_settings(raw, name)
    listed = content.get("special_tokens") if name == ENCODING else content
    kept = {token: change.ids[token] for token in listed if token in change.ids} if isinstance(listed, dict) else None
    changed: dict[str, Any] = kept or {}  # of `added_tokens.json`
    if name == "vocab.json":
        changed = dict(sorted((changed | dict(change.new)).items(), key=lambda item: item[1]))
    elif name == ENCODING:  # a list has no ids: they follow from the number of ranks
        changed = content if kept is None else content | {"special_tokens": kept}
    elif name == "tokenizer_config.json":
        gone, listed = set(change.gone.values()), content.get("added_tokens_decoder")
        changed = {
            key: _new_id(value, change, gone) if ID_FIELD.search(key) else value for key, value in content.items()
        }
        if isinstance(listed, dict):
            entries = [e for e in listed.values() if isinstance(e, dict) and e.get("content") in change.ids]
            changed["added_tokens_decoder"] = {str(change.ids[entry["content"]]): entry for entry in entries}
    return raw if changed == content else JsonStyle.of(raw).dump(changed)


def _new_id(value: Any, change: Change, gone: Collection[int]) -> Any:
    """An id after a change: None if its token was removed, unchanged if no token has it."""
    if isinstance(value, list):
        return [_new_id(one, change, gone) for one in value if type(one) is not int or one not in gone]
    if type(value) is not int:
        return value
    return None if value in gone else change.moved.get(value, value)


def _rewritten_rank_files(files: Mapping[str, bytes], change: Change, main: str | None) -> Iterator[tuple[str, bytes]]:
    """The rank file after a change, with the file that has its pattern; nothing if it cannot express the change."""
    name = rank_file(files)
    if name is None:
        return
    try:
        rewritten = rewritten_ranks(files, name, change)
    except UnsupportedTokenizerError:
        if name == main:
            raise
        return
    # Llama-3 may be in a folder twice: as `tokenizer.model` and as `original/tokenizer.model`.
    yield from ((twin, rewritten) for twin in files if files[twin] == files[name])
    if ENCODING in files:
        yield ENCODING, _rewritten_json(ENCODING, files[ENCODING], change)
    elif name == main and (encoding := family_encoding(RankFile.read(files[name], name).sha256)):
        # By its ranks, the file is no longer known.
        yield ENCODING, _rewritten_json(ENCODING, JsonStyle().dump(encoding.as_dict()), change)


def rewritten_ranks(files: Mapping[str, bytes], name: str, change: Change) -> bytes:
    """The rank file of this name after a change. `UnsupportedTokenizerError` says why it cannot express the change."""
    ranks = RankFile.read(files[name], name)
    texts = {text for text, _ in change.specials.values()}
    learned = {token: token_id for token, token_id in change.ids.items() if token not in texts}
    order = [token for token in (*ranks.ids, *change.new) if token in learned]
    if len(order) < len(learned):
        other = min(learned.keys() - set(order))
        _refuse(name, f"it lacks the token {other!r}, which is not new", "remove the file from the folder")
    for before, after in pairwise(order):
        if learned[before] > learned[after]:
            what = "a new token" if after in change.new else f"the token {after!r}"
            _refuse(
                name,
                f"{what} has the id {learned[after]:,}, and {before!r}, which merges before it, has "
                f"{learned[before]:,}: ids are priorities there, so a new token cannot take a lower one",
                "close the holes before you extend (`tokengraft prune --ids compact`, `Tokenizer.compact`)",
            )
    by_place, shift = _special_places(files, name, ranks, change)
    lowest, highest = min(learned.values(), default=ranks.first), max(learned.values(), default=-1)
    end = highest + 1 if shift is None or ranks.header is not None else ranks.end + shift
    if lowest < ranks.first or highest >= end:
        _refuse(
            name,
            f"the id {highest:,} is after the special tokens, which have the ids after all ranks there"
            if highest >= end
            else f"the id {lowest:,} is one of a special token there",
            "extend it as a tokenizer.json (`tokengraft convert SOURCE --to huggingface`); after that, `tokengraft "
            "convert --to tiktoken --renumber` moves the special tokens behind the new ones. If no loader counts "
            "ranks, give special tokens their ids: `tokengraft convert --special-tokens` with a JSON object",
        )
    ids = FrozenDict({token: learned[token] for token in order})
    return replace(ranks, ids=ids, end=end).write(fill=by_place)


def _special_places(files: Mapping[str, bytes], name: str, ranks: RankFile, change: Change) -> tuple[bool, int | None]:
    """Whether more ranks would move the special tokens, and by how much their ids change.

    None if their ids do not depend on the ranks, or there are none.
    """
    before = {after: token_id for token_id, after in change.moved.items()}
    specials: dict[str, tuple[int, int | None]] = {
        text: (before[after], after) for after, (text, _) in change.specials.items() if after in before
    }
    specials |= {text: (token_id, None) for text, token_id in change.gone.items() if text not in ranks.ids}
    by_place = False
    if ranks.header is None:
        # It is known for known files, and otherwise assumed where special tokens have the ids after the ranks.
        encoding = known_encoding(files, ranks)
        is_last = ranks.end in [token_id for token_id, _ in specials.values()]
        by_place = not isinstance(encoding.special_tokens, Mapping) if encoding else is_last
        specials = specials if by_place else {}
    else:
        specials = {text: ids for text, ids in specials.items() if ids[0] < ranks.first}
    gone = next((text for text, (_, after) in specials.items() if after is None), None)
    shifts = {after - before for before, after in specials.values() if after is not None}
    if gone is not None or len(shifts) > 1 or (ranks.header is not None and shifts - {0}):
        what = f"the special token {gone!r} was removed" if gone is not None else "special tokens have other ids"
        _refuse(name, f"{what}, and their loader gives them ids by their place", "keep the special tokens")
    return by_place, next(iter(shifts), None)


def _refuse(name: str, reason: str, hint: str) -> NoReturn:
    raise UnsupportedTokenizerError(f"`{name}` cannot express the change: {reason}", hint=hint)
