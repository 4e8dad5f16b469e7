"""Rows of new tokens for `train.py`, distilled from what the unchanged model makes of their pieces."""

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from lab.experiments.training.model import DEVICE, Arm, hidden, next_token_loss


def distill(run, model: torch.nn.Module, kept: torch.Tensor, data, arm: Arm, order: list[int]) -> torch.Tensor:
    """Rows of new tokens, learned with everything else frozen, on some documents.

    The hidden states after each place where both tokenizers have a token boundary are to be those of the unchanged
    model, and the next token is to be predicted.
    """
    base, new = data.arm("base"), arm.new.to(DEVICE)
    rows = torch.nn.Parameter(kept[new].clone())
    optimizer = torch.optim.AdamW([rows], lr=run.distill_lr, betas=(0.9, 0.95), weight_decay=0.0)
    lengths = [byte_lengths(item) for item in (base, arm)]
    sequences = [pair for i in order for pair in aligned(base.documents[i], arm.documents[i], *lengths)]
    size = run.distill_batch
    steps = len(sequences) // size
    for step in range(steps):
        old_ids, new_ids, old_at, new_at = padded(sequences[step * size : (step + 1) * size])
        for part in optimizer.param_groups:
            part["lr"] = run.distill_lr * min(1.0, (step + 1) / 10) * (1 - step / steps)
        with torch.autocast(DEVICE, torch.bfloat16):
            with torch.no_grad():
                wanted = hidden(model, old_ids).flatten(0, 1)[old_at].float()
            full = kept.index_copy(0, new, rows)
            embedded = F.embedding(new_ids.clamp(min=0), full)
            states = model.model(inputs_embeds=embedded, use_cache=False).last_hidden_state.flatten(0, 1)
            apart = (states[new_at].float() - wanted).square().mean() / wanted.var(0).mean()
            labels = torch.cat([new_ids[:, 1:], torch.full_like(new_ids[:, :1], -1)], dim=1).flatten()
            nats = next_token_loss(states, full.to(states.dtype), labels) / (labels >= 0).sum()
        optimizer.zero_grad()
        (run.hidden_weight * apart + nats).backward()
        optimizer.step()
        if step % max(1, steps // 6) == 0:
            print(
                f"    distill {step}/{steps}: hidden states {apart.item():.4f}, next token {nats.item():.3f}",
                flush=True,
            )
    return rows.detach()


def byte_lengths(arm: Arm) -> np.ndarray:
    """Bytes of every token. One character of a byte-level token is one byte."""
    lengths = np.zeros(arm.tokenizer.get_vocab_size() + 1_000, np.int64)
    for token, token_id in arm.tokenizer.get_vocab(with_added_tokens=False).items():
        lengths[token_id] = len(token)
    lengths[arm.separator] = 0
    return lengths


def aligned(old: np.ndarray, new: np.ndarray, old_lengths: np.ndarray, new_lengths: np.ndarray) -> list:
    """Parts of a document in both segmentations, with the places after which both have read the same bytes."""
    ends, new_ends = np.cumsum(old_lengths[old]), np.cumsum(new_lengths[new])
    if ends[-1] != new_ends[-1]:  # the text has special tokens
        return []
    parts, old_from, new_from = [], 0, 0
    _, at, new_at = np.intersect1d(ends, new_ends, return_indices=True)
    while old_from < len(old) - 1:
        inside = (at < old_from + 512) & (at >= old_from) & (new_at >= new_from)
        if not inside.any():
            break
        last, new_last = at[inside][-1], new_at[inside][-1]
        parts.append(
            (old[old_from : last + 1], new[new_from : new_last + 1], at[inside] - old_from, new_at[inside] - new_from)
        )
        if last < old_from + 8:
            break
        old_from, new_from = int(last), int(new_last)  # the last token is the context of the next part
    return parts


def padded(group: list) -> tuple[torch.Tensor, ...]:
    width, new_width = (-(-max(len(item[side]) for item in group) // 64) * 64 for side in (0, 1))
    old_ids = torch.zeros(len(group), width, dtype=torch.long)
    new_ids = torch.full((len(group), new_width), -1, dtype=torch.long)
    old_at, new_at = [], []
    for row, (old, new, at, other) in enumerate(group):
        old_ids[row, : len(old)] = torch.from_numpy(old).long()
        new_ids[row, : len(new)] = torch.from_numpy(new).long()
        old_at.append(at + row * width)
        new_at.append(other + row * new_width)
    places = [torch.from_numpy(np.concatenate(item)).to(DEVICE) for item in (old_at, new_at)]
    return old_ids.to(DEVICE), new_ids.to(DEVICE), *places
