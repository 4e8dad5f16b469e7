"""Continues the pre-training of an adapted model on local text: its new rows alone, if asked for, then everything.

    python examples/continue_pretraining.py adapted trained --train et.jsonl --keep en.jsonl --held-out et=test.jsonl

`adapted` is made by `tokengraft adapt`. The state is saved in `trained.work`, and the same command goes on from there.
"""

import argparse
import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig

from tokengraft.corpus.read import documents
from tokengraft.measure.segments import LINES
from tokengraft.train.models import hardware, load_model
from tokengraft.train.score import bits, chunks, learning_rate_factor, sequences

OPTIONS = {
    "--max-mb": (float, math.inf, "megabytes of text to train on"),
    "--passes": (int, 1, "how often the text is read, each time in another order"),
    "--rows-share": (float, None, "share of the text for the new rows alone (default: from training.json)"),
    "--rows-learning-rate": (float, None, "of the new rows alone (default: from training.json)"),
    "--learning-rate": (float, None, "of everything (default: from training.json)"),
    "--new-rows-factor": (float, None, "new rows learn this much faster than the rest (default: from training.json)"),
    "--step-kb": (float, 180, "kilobytes of text per step, whatever the tokenizer"),
    "--length": (int, 1024, "tokens per sequence"),
    "--micro-batch": (int, 16, "sequences in memory at once"),
    "--evaluate-every": (int, 50, "steps"),
    "--save-every": (int, 200, "steps"),
    "--device": (str, "cuda" if torch.cuda.is_available() else "cpu", "cuda or cpu"),
    "--seed": (int, 0, "decides the order of the documents"),
}
ONE_STAGE = {"new_ids": [], "stages": [{"share_of_text": 0}, {"learning_rate": 3e-4, "new_rows_factor": 1}]}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("adapted", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", nargs="+", required=True, help="text, JSON lines or Parquet")
    parser.add_argument("--keep", nargs="+", help="text to keep; it gets the share of the mix that training.json says")
    parser.add_argument("--held-out", nargs="+", default=[], metavar="NAME=FILE", type=lambda text: text.split("=", 1))
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    for name, (kind, default, text) in OPTIONS.items():
        parser.add_argument(name, type=kind, default=default, help=text)
    return parser.parse_args(arguments)


def mixed(paths, kept, share, choice):
    """The documents of ``paths``, and as many of ``kept``, chosen by chance, as have this share of all bytes."""
    texts, more = ([*documents(some, LINES)] if some else [] for some in (paths, kept))
    if not texts or (kept and not more):
        raise SystemExit(f"there is no text in {kept if texts else paths}")
    more = [more[at] for at in choice.permutation(len(more))]
    room = share / (1 - share) * sum(len(text.encode()) for text in texts)
    sizes = np.cumsum([len(text.encode()) for text in more])
    if kept and sizes[-1] < room:
        print(
            f"warning: {kept} has {sizes[-1] / 1e6:.2f} MB, too little for {share:.0%} of the text: all of it is used"
        )
    return texts + more[: int(np.searchsorted(sizes, room)) + 1]


def packed(tokenizer, texts, end, max_bytes=math.inf, seed=None, passes=1):
    """The text as one tensor of ids, with an end token before each document and at the end; and its bytes."""
    choice = np.random.default_rng(seed)
    texts = texts if seed is None else [texts[at] for at in choice.permutation(len(texts))]
    sizes = np.cumsum([len(text.encode()) for text in texts])
    texts = texts[: int(np.searchsorted(sizes, max_bytes)) + 1]
    encode, parts = tokenizer.to_tokenizers().encode_batch_fast, []
    for at in range(0, len(texts), 1000):  # in parts, because the objects of the library need much memory
        found = encode(texts[at : at + 1000], add_special_tokens=False)
        parts += [np.array([end, *text.ids], np.int32) for text in found]
    again = (parts[at] for _ in range(passes - 1) for at in choice.permutation(len(parts)))
    ids = np.concatenate([*parts, *again, [end]], dtype=np.int32)
    return torch.from_numpy(ids), passes * int(sizes[len(texts) - 1])


class Run:
    def __init__(self, args):
        self.args, self.log, self.step, self.saved, self.on_gpu = args, [], 0, None, args.device == "cuda"
        self.training = json.loads(file.read_text()) if (file := args.adapted / "training.json").exists() else ONE_STAGE
        self.loaded = load_model(args.adapted, hardware(args.device, "auto"), dtype="float32")
        self.model, tokenizer = self.loaded.model, self.loaded.tokenizer
        modules = (self.model.get_input_embeddings(), self.model.get_output_embeddings())
        self.tables = [*{id(m.weight): m.weight for m in modules if m is not None}.values()]  # one if tied
        self.new = torch.tensor(self.training["new_ids"], dtype=torch.long, device=args.device)
        rows, everything = self.training["stages"]
        known = {"rows_share": rows["share_of_text"], "rows_learning_rate": rows.get("learning_rate"), **everything}
        self.rates = known | {name: value for name, value in vars(args).items() if name in known and value is not None}
        self.forward = torch.compile(self.model) if args.compile else self.model
        end, *_ = np.atleast_1d(self.model.config.eos_token_id).tolist()
        texts = mixed(args.train, args.keep, self.training.get("kept_share", 0.1), np.random.default_rng(args.seed))
        self.ids, self.n_bytes = packed(tokenizer, texts, end, args.max_mb * 1e6, args.seed, args.passes)
        held_out = {name: [*chunks(documents(path, LINES))] for name, path in args.held_out}
        self.held_out = {name: sequences(tokenizer, text) for name, text in held_out.items()}
        self.per_step = max(1, round(args.step_kb * 1000 * len(self.ids) / self.n_bytes / args.length))
        self.steps = (len(self.ids) - 1) // args.length // self.per_step
        self.work = args.out.with_name(args.out.name + ".work")
        self.settings = {"tokens": len(self.ids)} | {name: str(value) for name, value in vars(args).items()}

    def windows(self, at, n):
        """Inputs and targets of n sequences, from sequence ``at`` on."""
        part = self.ids[at * self.args.length : (at + n) * self.args.length + 1].to(self.args.device).long()
        return part[:-1].view(-1, self.args.length), part[1:].view(-1, self.args.length)

    def loss(self, inputs, targets):
        """The sum of the losses of all tokens, in nats."""
        with torch.autocast(self.args.device, torch.bfloat16, enabled=self.on_gpu):
            logits = self.forward(input_ids=inputs, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")

    def report(self, stage, loss):
        scored = {name: bits(self.loaded, text, ())[0] for name, text in self.held_out.items()}
        scores = {name: each.bits / each.bytes for name, each in scored.items()}
        read = self.step * self.per_step * self.args.length
        entry = {"stage": stage, "step": self.step, "tokens": read, "mb": read / len(self.ids) * self.n_bytes / 1e6}
        self.log.append(entry | {"loss": loss, "bits_per_byte": scores, "time": time.time()})
        print(json.dumps(self.log[-1]), flush=True)

    def stages(self):
        """The two stages: name, number of steps, learning rate, and the weights that are trained."""
        first = round(self.rates["rows_share"] * self.steps) if self.training["new_ids"] else 0
        yield "new rows", first, self.rates["rows_learning_rate"], self.tables
        yield "everything", self.steps - first, self.rates["learning_rate"], [*self.model.parameters()]

    def train(self, stage, begin, n, rate, weights):
        for weight in self.model.parameters():
            weight.requires_grad_(any(weight is trained for trained in weights))
        optimizer = torch.optim.AdamW(weights, lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=self.on_gpu)
        if self.saved and self.saved["stage"] == stage:
            optimizer.load_state_dict(self.saved.pop("optimizer"))
        while self.step < begin + n:
            optimizer.param_groups[0]["lr"] = rate * learning_rate_factor(self.step - begin, n)
            loss = self.gradient()
            for table in weights if stage == "new rows" else ():  # AdamW keeps rows whose gradient was always 0
                table.grad = torch.zeros_like(table.grad).index_copy_(0, self.new, table.grad[self.new])
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            before = [(table, table.detach()[self.new]) for table in self.tables if stage == "everything"]
            optimizer.step()
            for table, rows in before:
                table.data[self.new] = rows + self.rates["new_rows_factor"] * (table.data[self.new] - rows)
            optimizer.zero_grad(set_to_none=True)
            self.step += 1
            if self.step % self.args.evaluate_every == 0 or self.step == begin + n:
                self.report(stage, float(loss))
            if self.step % self.args.save_every == 0 or self.step == begin + n:
                self.save(stage, optimizer)

    def gradient(self):
        """Adds up the gradient of one step, and returns its loss per token."""
        total, n_tokens, first = 0.0, self.per_step * self.args.length, self.step * self.per_step
        for at in range(first, first + self.per_step, self.args.micro_batch):
            n = min(self.args.micro_batch, first + self.per_step - at)
            loss = self.loss(*self.windows(at, n)) / n_tokens
            loss.backward()
            total += loss.detach()
        return total

    def save(self, stage, optimizer):
        state = {"stage": stage, "model": self.model.state_dict(), "optimizer": optimizer.state_dict()}
        self.work.mkdir(parents=True, exist_ok=True)
        torch.save(state | {"step": self.step, "log": self.log, "settings": self.settings}, self.work / "partial")
        (self.work / "partial").replace(self.work / "state.pt")

    def resume(self):
        self.saved = torch.load(self.work / "state.pt", map_location=self.args.device, weights_only=True)
        if self.saved["settings"] != self.settings:
            raise SystemExit(f"`{self.work}` is from a run with other options or text: delete it to start again")
        self.model.load_state_dict(self.saved["model"])
        self.step, self.log = self.saved["step"], self.saved["log"]

    def write(self):
        """Writes the folder under another name, then renames it: it is complete or absent."""
        partial = self.work / "model"
        self.model.to(AutoConfig.from_pretrained(self.args.adapted).dtype or torch.float32).save_pretrained(partial)
        left_out = {"README.md", "tokengraft.json", "training.json"}  # they describe the untrained model
        for path in self.args.adapted.iterdir():  # the tokenizer, the chat template and the like
            new = ".safetensors" not in path.name and not (partial / path.name).exists()
            if new and path.is_file() and path.name not in left_out:
                shutil.copy2(path, partial)
        (partial / "training_log.json").write_text(json.dumps(self.log, indent=1) + "\n")
        partial.rename(self.args.out)
        shutil.rmtree(self.work)


def main(arguments=None):
    args, begin = parse(arguments), 0
    if args.out.exists() or args.passes < 1:
        raise SystemExit(f"`{args.out}` exists" if args.out.exists() else "pass --passes of 1 or more")
    run = Run(args)
    print(f"{run.n_bytes / 1e6:.2f} MB, {len(run.ids):,} tokens, {run.steps} steps of {run.per_step} x {args.length}")
    if run.steps == 0 or not 0 <= (args.rows_share or 0) <= 1:
        raise SystemExit("no step to train: pass more text or a smaller --step-kb, and --rows-share from 0 to 1")
    run.resume() if (run.work / "state.pt").exists() else run.report("start", None)
    for stage, n, rate, weights in run.stages():
        if run.step < begin + n:
            run.train(stage, begin, n, rate, weights)
        begin += n
    run.write()


if __name__ == "__main__":
    main()
