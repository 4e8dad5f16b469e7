"""Rows of new tokens for `train.py` from hidden states of the unchanged model, with no training step."""

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from lab.experiments.training.model import DEVICE, Arm, hidden

LENGTH = 1024
MOST = 1_500_000
"""Tokens that are read."""


@torch.no_grad()
def state_rows(init: str, model: torch.nn.Module, base: Arm, arm: Arm, order: list[int]) -> torch.Tensor:
    """The mean of the pieces, moved so that the output gives a new token the probability of all its pieces together.

    A new token should have the logit of its first piece plus the log probability of the others: what the model itself
    gives to the pieces one after the other. Hidden states have little variance in most directions: only along the
    others does the output decide, and the row stays the mean of its pieces elsewhere. ``states:10``: how much a move
    costs, relative to the mean variance.
    """
    cost = float(init.partition(":")[2] or 10)
    table, new = model.get_input_embeddings().weight, arm.new.tolist()
    pieces = [arm.sources[i] for i in new]
    rest, second, mean = read(model, base, arm, order)
    rows = torch.stack([table[ids].mean(0) for ids in pieces])
    wanted = table[[ids[0] for ids in pieces]]
    missing = (wanted - rows) @ second + rest[:, None] * mean
    ridge = cost * second.diagonal().mean() * torch.eye(len(second), device=DEVICE)
    return rows + torch.linalg.solve(second + ridge, missing.T).T


def read(model: torch.nn.Module, base: Arm, arm: Arm, order: list[int]) -> tuple[torch.Tensor, ...]:
    """For each new token the mean log probability of the pieces after the first; second moment and mean of states."""
    lengths = np.array([len(source) if isinstance(source, list) else 1 for source in arm.sources])
    place = np.full(len(arm.sources), -1)
    place[arm.new.numpy()] = np.arange(len(arm.new))
    ids, owners, total = [], [], 0
    for i in order:
        old, new = base.documents[i], arm.documents[i]
        if lengths[new].sum() != len(old):  # other splits: not by adding tokens alone
            continue
        owner = np.repeat(place[new], lengths[new])
        owner[np.cumsum(lengths[new]) - lengths[new]] = -1  # the first piece
        ids.append(old)
        owners.append(owner)
        total += len(old)
        if total > MOST:
            break
    n = total // LENGTH * LENGTH
    stream, owner = (torch.from_numpy(np.concatenate(part)[:n].reshape(-1, LENGTH)) for part in (ids, owners))
    table = model.get_input_embeddings().weight
    size = table.shape[1]
    second, mean = torch.zeros(size, size, device=DEVICE), torch.zeros(size, device=DEVICE)
    sums, counts = (torch.zeros(len(arm.new), device=DEVICE) for _ in range(2))
    for part, owns in zip(stream.to(DEVICE).split(8), owner.to(DEVICE).split(8), strict=True):
        with torch.autocast(DEVICE, torch.bfloat16):
            states = hidden(model, part.long())
            logits = F.linear(states[:, :-1], table.to(states.dtype)).float()
        found = -F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten().long(), reduction="none")
        known = owns[:, 1:].flatten()
        sums.index_add_(0, known[known >= 0], found[known >= 0])
        firsts = known[known >= 0]
        counts.index_add_(0, firsts, torch.ones_like(firsts, dtype=torch.float))
        flat = states.flatten(0, 1).float()
        second += flat.T @ flat / n
        mean += flat.sum(0) / n
    pieces = torch.tensor([lengths[i] - 1 for i in arm.new.tolist()], device=DEVICE, dtype=torch.float)
    per_piece = sums.sum() / counts.sum().clamp(min=1)
    rest = (sums + per_piece) / (counts + 1) * pieces  # one piece more for those that are seen rarely or never
    return rest, second, mean
