"""`Change`: the tokens of a tokenizer after a change. Every file format rewrites its files by it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.added import FLAGS, AddedToken


@dataclass(frozen=True)
class Change:
    """The tokens of a tokenizer after a change, and how they differ from those before."""

    before: Mapping[str, int]
    """All tokens before the change, with their ids."""
    ids: Mapping[str, int]
    """All tokens after it."""
    added: Sequence[AddedToken] = ()
    """Added tokens, new ones too. Those that ``ids`` lacks are removed."""
    learned: Sequence[str] | None = None
    """The other new tokens in the order they were learned; None if that is the order of their ids."""
    scores: Mapping[str, float] = field(default_factory=FrozenDict)
    """Unigram: the scores of the new tokens."""
    roles: Mapping[str, str] = field(default_factory=FrozenDict)
    """Settings such as `eos_token` that name another token now."""

    @cached_property
    def specials(self) -> dict[int, tuple[str, bool]]:
        """Added tokens by their new id: the text, and whether the token is special."""
        kept = (token for token in self.added if token.content in self.ids)
        return {self.ids[token.content]: (token.content, token.special) for token in kept}

    @cached_property
    def given(self) -> dict[str, dict[str, bool]]:
        """New added tokens by ascending id, with their flags."""
        known = {token.content: token for token in self.added if token.content not in self.before}
        new = sorted(known.keys() & self.ids.keys(), key=self.ids.__getitem__)
        return {content: {flag: getattr(known[content], flag) for flag in FLAGS} for content in new}

    @cached_property
    def new(self) -> dict[str, int]:
        """New tokens, in the order they were learned. Added tokens are not learned."""
        learned = self.learned
        if learned is None:
            learned = sorted(self.ids.keys() - self.before.keys() - self.given.keys(), key=self.ids.__getitem__)
        return {token: self.ids[token] for token in learned}

    @cached_property
    def moved(self) -> Mapping[int, int]:
        """Kept tokens: the id before, and the id after."""
        return {token_id: self.ids[string] for string, token_id in self.before.items() if string in self.ids}

    @cached_property
    def gone(self) -> Mapping[str, int]:
        """Removed tokens, with the ids they had."""
        if self.learned is not None and len(self.ids) == len(self.before) + len(self.learned) + len(self.given):
            return {}  # a vocabulary that only grew need not be searched
        return {string: token_id for string, token_id in self.before.items() if string not in self.ids}

    @cached_property
    def replaced(self) -> dict[str, str]:
        """Removed tokens, each with the new token that has its id, if no kept token has another id than before."""
        if any(before != after for before, after in self.moved.items()):
            return {}
        new = {token_id: token for token, token_id in self.new.items()}
        return {string: new[token_id] for string, token_id in self.gone.items() if token_id in new}

    @cached_property
    def renamed(self) -> dict[str, str]:
        """Removed tokens, each with the new added token that has its id."""
        given = {self.ids[token]: token for token in self.given}
        return {string: given[token_id] for string, token_id in self.gone.items() if token_id in given}
