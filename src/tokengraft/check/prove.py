"""`prove_conversion`: encodes text with a tokenizer and with its conversion, and compares every id."""

from typing import NamedTuple

from tokengraft.check.verify import added_texts, sample_texts
from tokengraft.errors import InvalidTokenizerError
from tokengraft.tokenizer.tokenizer import Tokenizer


class Proof(NamedTuple):
    """What was compared."""

    tokens: int
    """Tokens whose own text was encoded, added ones included."""
    texts: int
    """Texts of random tokens, and texts with added tokens."""
    moved: int
    """Tokens that have other ids in the conversion."""


def prove_conversion(before: Tokenizer, after: Tokenizer) -> Proof:
    """Compares the ids of both tokenizers, on the text of every token and on text of random tokens.

    Raises:
        InvalidTokenizerError: They encode a text to different tokens. Then the conversion is wrong.
    """
    new_ids = {token_id: after.ids.get(string, -1) for token_id, string in before.strings.items()}
    own = [token.bytes.decode(errors="replace") for token in before.tokens]
    texts = [*sample_texts(before), *added_texts(before)]
    for text in [*own, *texts]:
        if [new_ids[token_id] for token_id in before.encode(text)] != after.encode(text):
            raise InvalidTokenizerError(f"the two encode {text!r} to different tokens", hint="please report this")
    return Proof(len(own), len(texts), sum(old != new for old, new in new_ids.items()))
