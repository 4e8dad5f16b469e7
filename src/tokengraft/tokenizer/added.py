"""Added tokens: tokens that are split out of the text before BPE, with the ids that loaders give them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokengraft import _core
from tokengraft.representation import shown
from tokengraft.tokenizer.settings import FLAGS, settings_entries


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

    The listed tokens are followed by those that only other files name (see `settings`). A token that is in the
    vocabulary has its id there. Any other gets the next free id, whatever id the file lists. If two files give
    different flags, those of the later one count.

    Args:
        vocabulary: The vocabulary.
        listed: The entries of `added_tokens` in `tokenizer.json`.
        files: The other files of the folder.
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
            flags = {name: entry[name] for name in FLAGS}
            tokens[content] = AddedToken(id=token_id, content=content, listed_id=listed_id, **flags)
    return tuple(sorted(tokens.values()))
