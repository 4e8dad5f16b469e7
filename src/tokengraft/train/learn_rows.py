"""`RowLearner`: learns rows so that hidden states equal those of a teacher, and so that the next token is likely."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft.train.row_model import Batch, RowModel, batch_of
from tokengraft.train.short_training import learning_rate_factor
from tokengraft.train.snippets import Snippet

BETAS = (0.9, 0.99)
BALANCE_EVERY = 25
"""Steps after which the gradients of the two losses are compared again."""
FLOOR = 1e-3
"""The least variance of a dimension of hidden states, as a share of the mean. Some dimensions hardly vary."""


@dataclass(frozen=True)
class LearningOptions:
    """How rows are learned."""

    passes: int
    step_snippets: int
    learning_rate: float
    """In units of the root mean square of the old rows."""
    next_token_weight: float
    seed: int


class RowAdam:
    """Adam with one second moment for all rows, taken from the rows that occur in a step.

    With a second moment for each row, a row that does not occur would move as far as one that does, by the small
    gradient that makes it less likely. Without these small gradients, new tokens would become too likely.
    """

    def __init__(self, rows: Any) -> None:
        import torch

        self.rows = rows
        self.mean, self.square = torch.zeros_like(rows), torch.zeros_like(rows[:1])
        self.steps = 0

    def step(self, gradient: Any, occurring: Any, rate: float) -> None:
        """Changes all rows by a gradient. The size of the change is ``rate`` for typical rows that occur."""
        first, second = BETAS
        self.steps += 1
        self.mean = first * self.mean + (1 - first) * gradient
        typical = gradient[occurring].pow(2).mean(0, keepdim=True)
        self.square = second * self.square + (1 - second) * typical
        mean, square = self.mean / (1 - first**self.steps), self.square / (1 - second**self.steps)
        self.rows.data -= rate * mean / (square.sqrt() + 1e-12)

    def state(self) -> dict[str, Any]:
        """What must be saved to go on later."""
        return {"rows": self.rows.data, "mean": self.mean, "square": self.square, "steps": self.steps}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state."""
        self.rows.data.copy_(state["rows"])
        self.mean, self.square, self.steps = state["mean"], state["square"], state["steps"]


class RowLearner:
    """The rows of some tokens, and how far they are learned."""

    def __init__(self, model: RowModel, snippets: Sequence[Snippet], options: LearningOptions) -> None:
        import torch

        self.model, self.options, self.snippets = model, options, snippets
        device = model.table.device
        self.adams = [RowAdam(torch.nn.Parameter(model.table[model.ids].detach().float().clone()))]
        if model.head is not None:
            self.adams.append(RowAdam(torch.nn.Parameter(model.head[model.ids].detach().float().clone())))
        self.place_of = torch.full((len(model.table),), -1, device=device)
        self.place_of[model.ids] = torch.arange(len(model.ids), device=device)
        self.done, self.balance = 0, 1.0
        self.variance: Any = None
        self._pass, self._order = -1, list[int]()

    @property
    def per_pass(self) -> int:
        """Steps of one pass over the snippets."""
        return -(-len(self.snippets) // self.options.step_snippets)

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.per_pass * self.options.passes

    def batch(self, snippets: Sequence[Snippet]) -> Batch:
        """Snippets as tensors on the device."""
        loaded = self.model.loaded
        return batch_of(snippets, self.model.old_start, loaded.start, loaded.hardware.device)

    def measure_variance(self, snippets: Sequence[Snippet], per_batch: int) -> None:
        """Takes the variance of every dimension of the teacher's states from some snippets."""
        import torch

        parts = [snippets[at : at + per_batch] for at in range(0, len(snippets), per_batch)]
        states = torch.cat([self.model.teacher_states(self.batch(part)) for part in parts])
        variance = states.var(0, correction=0)
        self.variance = variance.clamp(min=float(variance.mean()) * FLOOR + 1e-20)

    def losses(self, batch: Batch) -> tuple[Any, Any]:
        """The share of the variance of hidden states that is missed, and the loss of the next token."""
        rows = [adam.rows for adam in self.adams]
        teacher = self.model.teacher_states(batch)
        states, next_token = self.model.student(batch, rows[0], rows[1] if len(rows) > 1 else None)
        return ((states - teacher) ** 2 / self.variance).mean(), next_token

    def score(self, snippets: Sequence[Snippet], per_batch: int) -> tuple[float, float]:
        """Both losses on snippets, as means over batches."""
        import torch

        parts = [snippets[at : at + per_batch] for at in range(0, len(snippets), per_batch)]
        with torch.no_grad():
            found = [[float(loss) for loss in self.losses(self.batch(part))] for part in parts]
        hidden, following = (sum(column) / len(found) for column in zip(*found, strict=True))
        return hidden, following

    def step(self) -> int:
        """Learns from the next snippets, and returns how many they were."""
        import torch

        snippets = self._next()
        batch = self.batch(snippets)
        hidden, following = self.losses(batch)
        weight = self.options.next_token_weight
        if weight and self.done % BALANCE_EVERY == 0:
            self.balance = self._ratio(hidden, following)
        total = hidden + weight * self.balance * following if weight else hidden
        rows = [adam.rows for adam in self.adams]
        gradients = torch.autograd.grad(total, rows, allow_unused=True)
        occurring = self.place_of[batch.new].unique()
        rate = learning_rate_factor(self.done, self.steps, 0.05) * self.options.learning_rate
        for adam, gradient, table in zip(self.adams, gradients, (self.model.table, self.model.head), strict=False):
            if gradient is not None:
                adam.step(gradient, occurring[occurring >= 0], rate * _root_mean_square(table))
        self.done += 1
        return len(snippets)

    def _ratio(self, hidden: Any, following: Any) -> float:
        """How much larger the gradient of the hidden states is than that of the next token, for the input rows."""
        import torch

        rows = self.adams[0].rows
        norms = [torch.autograd.grad(loss, rows, retain_graph=True)[0].norm() for loss in (hidden, following)]
        return float(norms[0] / norms[1].clamp(min=1e-12))

    def _next(self) -> list[Snippet]:
        """The snippets of a step. Every pass has another order, which depends on the seed alone."""
        number, place = divmod(self.done, self.per_pass)
        if number != self._pass:
            self._pass, self._order = number, list(range(len(self.snippets)))
            random.Random(f"{self.options.seed} {number}").shuffle(self._order)
        size = self.options.step_snippets
        return [self.snippets[at] for at in self._order[place * size : (place + 1) * size]]

    def save(self, path: Path, key: str) -> None:
        """Saves the state, so that an interrupted run can go on from here."""
        import torch

        state = {"key": key, "done": self.done, "balance": self.balance, "adams": [adam.state() for adam in self.adams]}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def resume(self, path: Path, key: str) -> None:
        """Goes on from a saved state, if there is one of the same run."""
        import torch

        if not path.is_file():
            return
        try:
            state = torch.load(path, map_location=self.model.table.device, weights_only=True)
        except Exception:  # a damaged file: start again
            return
        if state["key"] == key:
            self.done, self.balance = state["done"], state["balance"]
            for adam, saved in zip(self.adams, state["adams"], strict=True):
                adam.load(saved)


def _root_mean_square(table: Any) -> float:
    return float(table.float().pow(2).mean().sqrt())
