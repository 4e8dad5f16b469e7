"""`forms_of`: a word as the pipeline sees it, after a space and at the start of a text."""

from collections.abc import Sequence
from typing import NamedTuple

from tokengraft.tokenizer.kind import spell, token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

_BEFORE = ("", "(", "\n", "a", "1", ".")
"""Text after which a literal word may be a whole pretoken."""
_SHOWN = 6
SPLIT = "the pre-tokenizer splits it into"
"""How the reason begins for a word that merges cannot make one token."""


class Form(NamedTuple):
    """A word at one place in a text."""

    string: str | None
    """As the vocabulary spells it; None if it is not kept whole."""
    reason: str | None
    """Why it is not kept whole."""
    texts: tuple[str, ...] = ()
    """Running texts that have the form."""


def forms_of(tokenizer: Tokenizer, word: str, *, exact: bool) -> list[Form]:
    """The distinct forms of a word.

    Those of its text after a space and at the start of a text, or with ``exact`` the one of its literal text. The
    pipeline decides what a form is: it may normalize the word or put a space before it. For byte-level types a form is
    a whole pretoken. For SentencePiece types it may be a part of one.
    """
    places = (("a", " " + word.strip()), ("", word.strip()))
    in_text = (_form(tokenizer, _pieces_after(tokenizer, *place), "".join(place) + " a") for place in places)
    forms = [_literal(tokenizer, word)] if exact else [*in_text]
    return [*{(form.string, form.reason): form for form in reversed(forms)}.values()][::-1]


def _literal(tokenizer: Tokenizer, line: str) -> Form:
    literal = spell(line.encode(), tokenizer.kind)
    found = [(before, _pieces_after(tokenizer, before, line)) for before in _BEFORE]
    texts = tuple(before + line for before, pieces in found if pieces == [literal])
    if texts:
        return Form(literal, None, texts)
    # The normalizer changes it. At the start of a text it may also be given a space, so other places are asked first.
    whole = [(before, pieces) for before, pieces in found[1:] + found[:1] if pieces and len(pieces) == 1]
    before, pieces = whole[0] if whole else found[0]
    return _form(tokenizer, pieces, before + line)


def _pieces_after(tokenizer: Tokenizer, before: str, text: str) -> list[str | int] | None:
    """The pretokens of a text that follows another; None if the two are not kept apart."""
    head, pieces = tokenizer.pretokenize(before) if before else [], tokenizer.pretokenize(before + text)
    while head and pieces and head[0] == pieces[0]:
        head, pieces = head[1:], pieces[1:]
    if not head:
        return pieces
    first, last = pieces[0] if pieces else 0, head[0]
    if len(head) > 1 or not isinstance(first, str) or not isinstance(last, str) or not first.startswith(last):
        return None
    # Merges of a SentencePiece type do not depend on where a pretoken begins.
    return [first[len(last) :], *pieces[1:]] if tokenizer.kind == "sentencepiece" else None


def _form(tokenizer: Tokenizer, pieces: Sequence[str | int] | None, text: str) -> Form:
    if pieces is None:
        return Form(None, "the pre-tokenizer does not keep it apart from the text before it", (text,))
    strings = [piece for piece in pieces if isinstance(piece, str)]
    texts = [token_bytes(string, tokenizer.kind).decode(errors="replace") for string in strings]
    added = [tokenizer.strings[piece] for piece in pieces if isinstance(piece, int)]
    if added:
        alone = len(added) == 1 and not "".join(texts).strip()
        return Form(None, "it is an added token" if alone else f"it has the added token `{added[0]}`", (text,))
    if len(strings) == 1 and strings[0]:
        return Form(strings[0], None, (text,))
    if not any(strings):
        return Form(None, "the normalizer removes it", (text,))
    shown = [part for part in (texts[0].removeprefix(" "), *texts[1:]) if part]
    more = ", …" if len(shown) > _SHOWN else ""
    split = ", ".join(f"`{part}`" for part in shown[:_SHOWN])
    return Form(None, f"{SPLIT} {split}{more}", (text,))
