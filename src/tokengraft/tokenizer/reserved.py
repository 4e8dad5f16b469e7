"""Reserved tokens: those that models keep for later, and which of them nothing uses."""

import re
from collections.abc import Mapping

from tokengraft.tokenizer.rewrite import VOCAB_TXT, stale_files
from tokengraft.tokenizer.tokenizer import Tokenizer

RESERVED = re.compile(
    r"<unused_?\d+>|\[unused_?\d+\]|<\|?reserved_[a-z_]*\d+\|?>|\[control_\d+\]|<SPECIAL_(?:[2-9]\d|\d{3,})>"
)
"""The names of reserved tokens: Gemma, BERT, Llama-3, Mistral, tekken, which has other names for the first 20."""


def reserved_tokens(tokenizer: Tokenizer, counted: Mapping[str, int] | None = None) -> set[int]:
    """The ids of reserved tokens that occur in no chat template, post-processor or setting, and are not ``counted``.

    They are added tokens, or ordinary ones in vocabularies of WordPiece.
    """
    listings = ("added_tokens.json", "vocab.json", "merges.txt", VOCAB_TXT, tokenizer.piece_file)
    settings = [raw for name, raw in tokenizer.files.items() if name not in (*listings, *stale_files(tokenizer.files))]
    # `added_tokens_decoder` lists every added token, as `added_tokens` does: being listed is not being used.
    listing = r'"added_tokens_decoder"\s*:\s*\{(?:[^{}]|\{[^{}]*\})*\}'
    texts = [re.sub(listing, "", raw.decode(errors="replace")) for raw in settings]
    texts.append(str({name: value for name, value in tokenizer.document.items() if name != "added_tokens"}))
    added = {token.content for token in tokenizer.added}
    candidates = {
        string: token_id
        for string, token_id in tokenizer.ids.items()
        if (string in added or tokenizer.algorithm == "WordPiece") and RESERVED.fullmatch(string)
    }
    unused = {string for string in candidates if not (counted or {}).get(string)}
    return {candidates[string] for string in unused if not any(string in text for text in texts)}
