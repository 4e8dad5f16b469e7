"""Rows of new tokens for `train.py` that learn together: a token's row changes with the rows of its parts."""

import json

import torch

from lab.experiments.training.model import DEVICE, Arm


class SharedRows:
    """Rows of new tokens as their first value plus a sum of changes: the token's own, and those of its parts.

    A token is made by one merge of two tokens. What is learned for a part that is a new token too counts for the whole,
    in proportion to its length, times ``share``. So the row of a rare token learns from every token that has its parts.
    """

    def __init__(self, arm: Arm, table: torch.nn.Parameter, share: float) -> None:
        self.table, self.new = table, arm.new.to(DEVICE)
        self.first = table.detach()[self.new].clone()
        self.sum = sums(arm, share).to(DEVICE)
        self.changes = torch.nn.Parameter(torch.zeros_like(self.first))

    def take_gradients(self) -> None:
        """Moves the gradients of the rows to the changes."""
        self.changes.grad = self.sum.T @ self.table.grad[self.new]
        self.table.grad[self.new] = 0

    @torch.no_grad()
    def set_rows(self) -> None:
        self.table[self.new] = self.first + self.sum @ self.changes


def sums(arm: Arm, share: float) -> torch.Tensor:
    """For each new token, how much the changes of each new token count."""
    places = {int(token_id): place for place, token_id in enumerate(arm.new)}
    made = torch.eye(len(places))
    for left, right in merges(arm):
        place = places.get(arm.tokenizer.token_to_id(left + right))
        if place is None:
            continue
        for part in (left, right):
            other = places.get(arm.tokenizer.token_to_id(part))
            if other is not None:
                made[place] += share * len(part) / len(left + right) * made[other]
    return made


def merges(arm: Arm) -> list[tuple[str, str]]:
    """In their order, so that the parts of a token come before it."""
    listed = json.loads(arm.tokenizer.to_str())["model"]["merges"]
    return [tuple(pair) for pair in listed]
