"""The model of a run: like Llama, with tied tables and the rows of an arm; compiled once for each number of rows."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional as F  # noqa: N812
from transformers import AutoModelForCausalLM

END_OF_TEXT = "<|endoftext|>"
MEANS = {"fvt": 0.0, "fvt-rare": 2.0, "fvt-rare-1": 1.0, "fvt-rare-3": 3.0}
"""Initialisers by how far they move the mean of the pieces towards rare tokens."""
SAMPLE = 1 << 14
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Arm:
    """A tokenizer, where the rows of its tokens come from, and the tokens of all documents."""

    def __init__(self, folder: Path, documents: list[str], separator: int, cache: Path | None = None) -> None:
        self.separator = separator
        self.folder = folder
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.sources = json.loads((folder / "plan.json").read_text())["sources"]
        self.new = torch.tensor(
            [i for i, source in enumerate(self.sources) if isinstance(source, list)], dtype=torch.long
        )
        self.documents = self.encoded(documents) if cache is None else self.cached(documents, cache)

    def encoded(self, documents: list[str]) -> list[np.ndarray]:
        encoded = self.tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        return [np.array([self.separator, *item.ids], np.int32) for item in encoded]

    def cached(self, documents: list[str], cache: Path) -> list[np.ndarray]:
        """The tokens from a file that other processes read too."""
        if not cache.exists():
            found = self.encoded(documents)
            partial = cache.with_name(f"{cache.name}.{os.getpid()}.npz")
            np.savez(partial, ids=np.concatenate(found), sizes=[len(ids) for ids in found])
            partial.replace(cache)
        file = np.load(cache)
        return np.split(file["ids"], np.cumsum(file["sizes"])[:-1])

    def stream(self, order: list[int]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([self.documents[i] for i in order])).long()


class Models:
    """One model for each number of rows. Its weights are set anew for every run, so that it is compiled once."""

    def __init__(self, folder: Path) -> None:
        self.original = loaded(folder).to(DEVICE).requires_grad_(False).eval()
        self.folder, self.made = folder, {}
        config = self.original.config
        if not config.tie_word_embeddings:
            raise SystemExit("the model has an output of its own: pass a model with tied tables")
        self.separator = separator_of(Tokenizer.from_file(str(folder / "tokenizer.json")), config.bos_token_id)
        """The token between two documents, and before every scored text."""

    def fresh(self, arm: Arm, init: str) -> torch.nn.Module:
        """The model with the rows of an arm. The output is tied."""
        rows = mean_of_pieces(self.original, arm, init) if init in MEANS else new_table(self.folder, arm, init)
        if len(rows) not in self.made:
            self.made[len(rows)] = compiled(loaded(self.folder), rows)
        model = self.made[len(rows)]
        with torch.no_grad():
            for weight, old in zip(
                model.model.layers.parameters(), self.original.model.layers.parameters(), strict=True
            ):
                weight.copy_(old)
            model.model.norm.weight.copy_(self.original.model.norm.weight)
            model.get_input_embeddings().weight.copy_(rows)
        return model

    def save(self, arm: Arm, folder: Path) -> None:
        """Writes the model of an arm and its tokenizer as a folder."""
        model = self.made[len(arm.sources)]
        weights = {name: weight.half() for name, weight in model.state_dict().items() if name != "lm_head.weight"}
        model.config.vocab_size = len(arm.sources)
        model.config.save_pretrained(folder)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(arm.folder / name, folder)


def separator_of(tokenizer: Tokenizer, start: int) -> int:
    """The token that separated documents in pre-training, if it can be told by its name; else the start token.

    The config of a chat model, such as SmolLM2's, names the token that begins a turn instead.
    """
    found = tokenizer.token_to_id(END_OF_TEXT)
    return start if found is None else found


def mean_of_pieces(model: torch.nn.Module, arm: Arm, init: str) -> torch.Tensor:
    """The embedding that `tg.transplant` writes into a float16 model for some initialisers, without tokengraft."""
    old = model.get_input_embeddings().weight
    listed = [[source] if isinstance(source, int) else source for source in arm.sources]
    starts = torch.from_numpy(np.cumsum([0, *map(len, listed)])[:-1])
    ids = torch.tensor([i for ids in listed for i in ids])
    rows = F.embedding_bag(ids.to(DEVICE), old, starts.to(DEVICE), mode="mean")
    sample = old[:: max(1, len(old) // SAMPLE)]
    earlier, later = sample[: len(sample) // 2], sample[len(sample) // 2 :]
    rows[arm.new.to(DEVICE)] += MEANS[init] * (later.mean(0) - earlier.mean(0))
    return rows.half().float()


def new_table(folder: Path, arm: Arm, init: str) -> torch.Tensor:
    """The embedding as `tg.transplant` writes it, or that of a folder: ``folder:PATH``."""
    if init.startswith("folder:"):
        return embedding(Path(init.removeprefix("folder:")))
    import tokengraft as tg  # not needed for the mean of pieces
    from lab.experiments.rows import init_for

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "model"
        tg.transplant(folder, arm.folder, out, init=init_for(folder, arm.folder, init))
        return embedding(out)


def embedding(folder: Path) -> torch.Tensor:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return file.get_tensor("model.embed_tokens.weight").float().to(DEVICE)


def loaded(folder: Path) -> torch.nn.Module:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    return model


def compiled(model: torch.nn.Module, rows: torch.Tensor) -> torch.nn.Module:
    weight = torch.nn.Parameter(rows.clone())
    model = model.to(DEVICE)
    model.get_input_embeddings().weight = weight
    model.lm_head.weight = weight
    if DEVICE == "cuda":  # every layer has the same code: it is compiled once
        for layer in model.model.layers:
            layer.compile()
    return model


def hidden(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return model.model(input_ids=ids, use_cache=False).last_hidden_state


def next_token_loss(states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(states, weight).float(), labels, reduction="sum", ignore_index=-1)


def token_losses(states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The same, for each token; 0 where there is no label."""
    return F.cross_entropy(F.linear(states, weight).float(), labels, reduction="none", ignore_index=-1)


if DEVICE == "cuda":
    next_token_loss = torch.compile(next_token_loss, dynamic=True)
    token_losses = torch.compile(token_losses, dynamic=True)
