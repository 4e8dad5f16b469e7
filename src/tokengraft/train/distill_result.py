"""`Distillation`: what was learned by distillation, or would be. Plain data."""

from dataclasses import asdict, dataclass
from typing import Any

from tokengraft.arguments import checked
from tokengraft.representation import shown


@shown
@checked
@dataclass(frozen=True)
class Distillation:
    """The result of a distillation, or what a dry run would do."""

    learned: int
    """New tokens whose rows are learned."""
    rare: int
    """New tokens with too few snippets, which keep their rows."""
    snippets: int
    steps: int
    old_tokens: int
    """Tokens that the teacher reads in one pass over the snippets."""
    new_tokens: int
    """Tokens that the student reads."""
    memory: int
    """Bytes that it needs, estimated."""
    seconds: float
    """How long it takes, estimated."""
    device: str
    hidden_before: float | None = None
    """The share of the variance of hidden states that the new rows miss, on snippets that are not learned from."""
    hidden_after: float | None = None
    next_token_before: float | None = None
    """The loss of the next token on the same snippets, in nats per token."""
    next_token_after: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return asdict(self)
