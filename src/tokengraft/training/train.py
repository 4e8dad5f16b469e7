"""`train`: continues the pre-training of an adapted model on `transformers.Trainer`, and blends the result.

The state is saved in `OUT.work`, and the same call goes on from there. At the end, `OUT` is the adapted model with other
weights: its files, shards and types, with a card, a log and a plot.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import numpy as np

from tokengraft import _core
from tokengraft.checkpoint.blend import WeightBlend, copy_others, new_ids, write_report
from tokengraft.checkpoint.compare_files import require_torch
from tokengraft.checkpoint.layout import Checkpoint, find_vocabulary, open_checkpoint, require_no_adapter
from tokengraft.checkpoint.model_card import base_name, code, made_by, public_command, table, trained_card
from tokengraft.checkpoint.model_files import CARD, REPORT
from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.corpus.open import Corpus, local_files
from tokengraft.corpus.options import ReadOptions
from tokengraft.errors import CorpusError, OptionError, OutputError, require_type
from tokengraft.formats.sources import load_folder
from tokengraft.measure.bits import bits, chunk_bytes, chunks, score_models, sequences
from tokengraft.measure.models import LoadedModel, free_memory, hardware, load_model, start_ids
from tokengraft.measure.segments import LINES, Text
from tokengraft.output.atomic import new_folder, require_distinct, require_new
from tokengraft.progress import Stages, duration, stage, stages
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.training.options import KEPT_LIMIT, MAX_PASSES, MIN_STEPS, SHARES, Recipe, TrainOptions
from tokengraft.training.result import Training
from tokengraft.training.text import (
    HELD_OUT_BYTES,
    SCORED_SHARE,
    Ids,
    TrainingText,
    mix,
    old_tokens,
    packed,
    sample,
    training_text,
)

LOG, PLOT, WORK = "training_log.json", "training.svg", ".work"
LENGTH, SHORTEST = 1024, 64
WEIGHT_BYTES, ACTIVATION_BYTES, LOGIT_BYTES = 16, 40, 16
"""Memory: for a weight with its gradient and the state of AdamW; for a number of a layer's width; for a logit."""
CPU_TOKENS = 2048
"""Tokens of a batch on a CPU: more are no faster, and then long without a sign of progress."""
BACKWARD = 3.2
"""How much longer a token takes in training than in scoring."""
SAVE_SECONDS, ALIVE_SECONDS = 600, 20


@stage("training the model")
def train(
    adapted: str | os.PathLike[str],
    text: Corpus | Mapping[str, Corpus],
    *,
    out: str | os.PathLike[str],
    keep: Corpus | Mapping[str, Corpus] | None = None,
    held_out: Mapping[str, Corpus] | None = None,
    options: TrainOptions | None = None,
    read_options: ReadOptions | None = None,
    quiet: bool = False,
) -> Training:
    """Trains an adapted model on text, and blends it with the weights before training.

    Built on `transformers.Trainer`: run it by `torchrun` or `accelerate launch` to use several GPUs. An interrupted run
    goes on from its last saved step if it is called again, and ends with the same weights.

    Args:
        adapted: A model folder, as `adapt` writes it. Its `training.json` has the new rows and a learning rate. A model
            without it is trained too, as one without new rows.
        text: Text to learn: whatever `count` reads, or several by name.
        out: The folder to write. The state of the run is in a folder with `.work` after its name.
        keep: Text in the languages to keep, or several by name. It gets a fixed share of the training text.
        held_out: Text to score, by name. One with the name of a text of ``keep`` must not get worse. By default,
            documents of ``text`` and ``keep`` are held out.
        options: Passes, rate, blending and more.
        read_options: How to read the texts; by default text files have one document per line.
        quiet: Show no progress.

    Raises:
        SourceNotFoundError: The folder is not a checkpoint.
        CheckpointError: The model cannot be loaded or trained.
        CorpusError: A text is empty or cannot be read.
        OptionError: An option has an invalid value, or a library is not installed.
        OutputError: The folder exists, or the work folder is that of another run.
    """
    require_type("adapted", adapted, str, os.PathLike)
    require_type("options", options, TrainOptions, type(None))
    require_new(out, force=False)
    texts = text if isinstance(text, Mapping) else {"text": text}
    kept = keep if isinstance(keep, Mapping) else {} if keep is None else {"keep": keep}
    if both := {*texts} & {*kept}:
        raise OptionError(
            f"--text and --keep both have a text {min(both)!r}", hint="give each another name: NAME=FILES"
        )
    named = {**texts, **kept, **(held_out or {})}
    paths = [path for corpus in named.values() for path in local_files(corpus, read_options or LINES)]
    require_distinct([adapted, *paths], out, f"{os.fspath(out)}{WORK}")
    _require_trainer()
    require_no_adapter(Path(adapted))
    open_checkpoint(Path(adapted))
    is_main = int(os.environ.get("RANK", "0")) == 0
    with stages(quiet=quiet or not is_main) as shown:
        shown.start("reading the text")
        tokenizer = load_folder(Path(adapted))
        found = training_text(tokenizer, texts, kept, held_out or {}, read_options)
        run = _Run(Path(adapted), Path(out), tokenizer, found, options or TrainOptions(), shown)
        with _alive(shown):
            return run.result()


def _require_trainer() -> None:
    hint = 'install them: pip install "tokengraft[train]"'
    require_torch(hint)
    try:
        import accelerate  # noqa: F401
        from transformers import Trainer  # noqa: F401
    except ImportError as error:
        raise OptionError(f"training needs transformers and accelerate: {error}", hint=hint) from error


@contextmanager
def _alive(shown: Stages) -> Iterator[None]:
    """Shows the state of the stage from time to time: a step of a large model on a CPU takes minutes."""
    end = Event()

    def tell() -> None:
        while not end.wait(ALIVE_SECONDS):
            shown.update("", 0, 0)

    thread = Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@dataclass(frozen=True)
class Steps:
    """How the tokens are divided into steps."""

    n: int
    per_step: int
    """Sequences of a step, of all processes together."""
    length: int
    batch: int
    """Sequences that a process has in memory at once."""


@dataclass(frozen=True)
class _Run:
    """A training run: what it was asked for. Everything else is computed when it is needed."""

    folder: Path
    out: Path
    tokenizer: Tokenizer
    text: TrainingText
    options: TrainOptions
    shown: Stages

    @property
    def work(self) -> Path:
        """The folder with the state of the run."""
        return self.out.with_name(self.out.name + WORK)

    @property
    def world(self) -> int:
        """The number of processes, which launchers set."""
        return int(os.environ.get("WORLD_SIZE", "1"))

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model before training."""
        return open_checkpoint(self.folder)

    @cached_property
    def recipe(self) -> Recipe:
        """What `training.json` says, with the options in its place where they are given."""
        width = self.checkpoint.text_config.get("hidden_size") or self.checkpoint.text_config.get("n_embd") or 0
        recipe = Recipe.of(self.folder, width=width, rows=find_vocabulary(self.checkpoint).rows)
        names = ("learning_rate", "new_rows_factor", "kept_share", "step_bytes")
        given = {name: value for name in names if (value := getattr(self.options, name)) is not None}
        return replace(recipe, **given)

    @cached_property
    def passes(self) -> float:
        """As many as cost the tokens of one pass with the old tokenizer, if they were not given."""
        if self.options.passes != "auto":
            return float(self.options.passes)
        ids, _ = self._packed(1, 5_000_000)
        before = old_tokens(ids, self.recipe.new_ids, self.recipe.pieces)
        return float(min(MAX_PASSES, max(1, round(before / max(1, len(ids))))))

    def _packed(self, passes: float, max_bytes: int | None) -> tuple[Ids, int]:
        documents = mix(
            self.text.target, self.text.keep, share=self.recipe.kept_share, passes=passes, seed=self.options.seed
        )
        return packed(self.tokenizer, documents, start_ids(self.checkpoint, self.tokenizer), max_bytes)

    @cached_property
    def ids(self) -> tuple[Ids, int]:
        """The tokens of all passes in the order of training, and the bytes of their text."""
        ids, n_bytes = self._packed(self.passes, self.options.max_bytes)
        if not n_bytes or len(ids) <= 2 * self.world:
            raise CorpusError(f"the text has {len(ids)} tokens, too few for a step", hint="pass more to --text")
        return ids, n_bytes

    @cached_property
    def steps(self) -> Steps:
        """Steps of equal size. They do not depend on the number of processes, if it divides their sequences."""
        (ids, n_bytes), config = self.ids, self.checkpoint.text_config
        context = config.get("max_position_embeddings") or config.get("n_positions") or LENGTH
        longest = min(LENGTH, context, max(SHORTEST, len(ids) // SHORTEST), len(ids) // self.world)
        length = min(self.options.length or 1 << (longest.bit_length() - 1), context, len(ids) // self.world)
        n_sequences = len(ids) // length
        wanted = self.options.step_bytes or min(self.recipe.step_bytes, max(1, n_bytes // MIN_STEPS))
        per_step = max(1, round(n_sequences * wanted / n_bytes))
        grain = 8 if per_step >= 16 else 2 if per_step >= 2 else 1
        per_step = min(per_step // grain * grain, n_sequences)
        per_step = max(1, per_step // self.world if per_step >= self.world else 1) * self.world
        most = self.options.batch or self._fitting(length)
        here = per_step // self.world
        batch = next(n for n in range(min(most, here), 0, -1) if here % n == 0)
        return Steps(n_sequences // per_step, per_step, length, batch)

    @property
    def _token_bytes(self) -> int:
        """Memory for a token of a batch: activations and logits."""
        config, rows = self.checkpoint.text_config, find_vocabulary(self.checkpoint).rows
        layers, width = (config.get(name) or config.get(short) or 32 for name, short in _SHAPE)
        return layers * width * ACTIVATION_BYTES + rows * LOGIT_BYTES

    @property
    def _weights(self) -> int:
        return sum(info.size // ITEM_BYTES.get(info.dtype, 1) for info, _ in self.checkpoint.tensors)

    def _fitting(self, length: int) -> int:
        where = hardware()
        if not where.on_gpu:
            return max(1, CPU_TOKENS // length)
        left = 0.8 * where.memory - WEIGHT_BYTES * self._weights
        return 1 << max(0, int(left // (self._token_bytes * length)).bit_length() - 1) if left > 0 else 1

    @cached_property
    def scored(self) -> dict[str, tuple[str, ...]]:
        """The documents of every held-out text that are scored."""
        most = int(min(max(self.ids[1] // SCORED_SHARE, HELD_OUT_BYTES[0]), HELD_OUT_BYTES[1]))
        return {name: sample(documents, most) for name, documents in self.text.held_out.items()}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What decides the weights of the run. A work folder is only used by a run with the same."""
        files = {file.path.name: file.path.stat().st_size for file in self.checkpoint.files}
        options = {name: value for name, value in asdict(self.options).items() if name not in ("blend", "batch")}
        return {
            "tokengraft": _core.__version__,
            "model": {"files": files, "tokenizer": self.tokenizer.content_hash},
            "options": options | {"trainer": dict(self.options.trainer)},
            "recipe": asdict(self.recipe) | {"new_ids": len(self.recipe.new_ids), "pieces": sum(self.recipe.pieces)},
            "text": sha256(self.ids[0].tobytes()).hexdigest(),
            "steps": {name: n for name, n in asdict(self.steps).items() if name != "batch"},
        }

    def result(self) -> Training:
        """Trains, blends and writes the model."""
        self._open_work()
        args = self._arguments()
        history, before, warnings = self._trained(args)
        result = [None]
        if args.process_index == 0:
            result = [self._blended(history, before, warnings)]
        if self.world > 1:
            import torch

            torch.distributed.broadcast_object_list(result)
        return result[0]  # type: ignore[return-value]

    def _open_work(self) -> None:
        path, found = self.work / "settings.json", json.loads(json.dumps(self.settings))
        if path.is_file():
            with suppress(ValueError):
                if json.loads(path.read_bytes()) != found:
                    raise OutputError(
                        f"`{self.work}` is from a run with another model, text or other options",
                        hint="delete it to train from the beginning, or choose another --out",
                    )
        self.work.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found, indent=1) + "\n")
        partial.replace(path)

    def _arguments(self) -> Any:
        """The arguments of the Trainer."""
        from transformers import TrainingArguments

        where, steps, given = hardware(), self.steps, dict(self.options.trainer)
        fixed = {
            "output_dir": str(self.work),
            "learning_rate": self.recipe.learning_rate,
            "lr_scheduler_type": "cosine",
            "warmup_steps": max(1, round(0.1 * steps.n)),
            "adam_beta2": 0.95,
            "max_steps": steps.n,
            "per_device_train_batch_size": steps.batch,
            "gradient_accumulation_steps": steps.per_step // self.world // steps.batch,
            "train_sampling_strategy": "sequential",
            "seed": self.options.seed,
            "bf16": where.dtype == "bfloat16",
            "use_cpu": not where.on_gpu,
            "dataloader_pin_memory": where.on_gpu,
            "remove_unused_columns": False,
            "logging_steps": max(1, steps.n // 50),
            "save_strategy": "steps",
            "save_steps": steps.n,
            "save_total_limit": 1,
            "disable_tqdm": True,
            "report_to": "none",
        }
        try:
            args = TrainingArguments(**fixed | given)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"the Trainer refuses its arguments: {error}", hint="correct or leave out --trainer"
            ) from error
        if args.n_gpu > 1:
            self.shown.note(
                f"one of {args.n_gpu} GPUs is used; `torchrun --nproc-per-node {args.n_gpu} -m tokengraft "
                "train ...` uses all"
            )
            args._n_gpu = 1  # DataParallel would multiply the size of a step
        return args

    def _trained(self, args: Any) -> tuple[list[Any], dict[str, float], list[str]]:
        """Trains, or goes on. The trained weights are then in the work folder."""
        done = self.work / "trained.json"
        if done.is_file():
            found = json.loads(done.read_bytes())
            return found["history"], found["before"], found["warnings"]
        self.shown.start("scoring before training", "share")
        loaded = load_model(self.folder, hardware(), dtype="float32")
        before, seconds = self._before(loaded)
        ids, n_bytes = self.ids
        memory = WEIGHT_BYTES * self._weights + self.steps.batch * self.steps.length * self._token_bytes
        warnings = [*self.text.warnings]
        if memory > (free := _free_memory(loaded)):
            warnings.append(
                f"training needs about {memory / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; use a larger "
                "machine, or LoRA (see the guide)"
            )
        every = max(1, min(self.steps.n, round(SAVE_SECONDS / max(seconds / self.steps.n, 1e-3))))
        if "save_steps" not in self.options.trainer:
            args.save_steps = every
        self.shown.note(
            f"{n_bytes / 1e6:,.2f} MB of text, {len(ids):,} tokens, {self.passes:g} passes; {self.steps.n:,} steps of "
            f"{self.steps.per_step} × {self.steps.length} tokens at a rate of {self.recipe.learning_rate:g}; about "
            f"{memory / 1e9:.1f} GB of memory and {duration(seconds)}"
        )
        for warning in warnings:
            self.shown.note(f"warning: {warning}")
        from tokengraft.training.trainer import trained

        history = trained(self, loaded, args, warnings)
        if args.process_index == 0:
            partial = done.with_suffix(".partial")
            partial.write_text(json.dumps({"history": history, "before": before, "warnings": warnings}))
            partial.replace(done)
        return history, before, warnings

    def _before(self, loaded: LoadedModel) -> tuple[dict[str, float], float]:
        """Bits per byte before training, and the seconds that training will take, by the speed of scoring."""
        size, found, tokens, seconds = chunk_bytes([self.folder]), dict[str, float](), 0, 0.0
        total = sum(len(document.encode()) for documents in self.scored.values() for document in documents)
        for name, documents in self.scored.items():
            text = sequences(loaded.tokenizer, [*chunks(documents, size)])
            rate, start = text.text_bytes / max(1, text.n_tokens), monotonic()
            score, _ = bits(
                loaded, text, progress=lambda n, name=name, rate=rate: self.shown.update(name, round(n * rate), total)
            )
            found[name] = score.bits / score.bytes
            tokens, seconds = tokens + text.n_tokens, seconds + monotonic() - start
        return found, BACKWARD * seconds / max(1, tokens) * len(self.ids[0]) / self.world

    def _blended(self, history: list[Any], before: dict[str, float], warnings: list[str]) -> Training:
        """Scores the shares, chooses one, and writes the model with it."""
        free_memory()
        job = WeightBlend.prepare(
            open_checkpoint(self.work / "trained"), self.checkpoint, self._new(), layout="adapted"
        )
        chosen, wanted = self.options.blend, SHARES if self.options.blend == "auto" else (0.0, self.options.blend)
        if chosen == "auto" and not self.text.kept:
            chosen, wanted = 0.0, (0.0,)
            warnings.append("there is no kept text (--keep), so the weights were not blended")
        self.shown.start("blending", "share")
        shares = dict[float, dict[str, float]]()
        for share in dict.fromkeys(wanted):
            candidate = self.work / "candidate"
            shutil.rmtree(candidate, ignore_errors=True)
            candidate.mkdir()
            job.write(share, candidate)
            copy_others(self.folder, self.folder, candidate)
            scores = score_models({"": candidate}, {name: Text(name, parts) for name, parts in self.scored.items()})
            shares[share] = {name: found.bits / found.bytes for (_, name), (found, _) in scores.items()}
            self.shown.update(f"{share:g}", 1, len(wanted))
        if chosen == "auto":
            chosen, enough = chosen_share(shares, before, self.text.kept)
            if not enough:
                warnings.append(
                    f"kept text is more than {KEPT_LIMIT:.0%} worse than before training with every share; a lower "
                    "--learning-rate, a larger --kept-share or fewer --passes forget less"
                )
        scored = {name: sum(len(text.encode()) for text in parts) for name, parts in self.scored.items()}
        result = Training(
            passes=self.passes,
            steps=self.steps.n,
            text_bytes=self.ids[1],
            tokens=len(self.ids[0]),
            learning_rate=self.recipe.learning_rate,
            share=float(chosen),
            before=before,
            shares=shares,
            kept=tuple(sorted(self.text.kept)),
            scored=scored,
            warnings=tuple(dict.fromkeys(warnings)),
        )
        self._write(job, history, result)
        shutil.rmtree(self.work)
        return result

    def _new(self) -> "np.ndarray":
        rows = find_vocabulary(self.checkpoint).rows
        if self.recipe.new_ids:
            return np.array(self.recipe.new_ids, np.int64)
        return new_ids(self.folder, rows)[0]

    def _write(self, job: WeightBlend, history: list[Any], result: Training) -> None:
        from tokengraft.training.held_out import plot

        heads, rows = result.table()
        options = {
            name: value for name, value in asdict(self.options).items() if value != getattr(TrainOptions(), name)
        }
        words = ["tokengraft", "train", base_name(self.folder), "--text", "TEXT"]
        words += ["--keep", "TEXT"] * bool(self.text.keep)
        for name, value in options.items():
            for item in value.items() if isinstance(value, Mapping) else [value]:
                shown = f"{item[0]}={item[1]}" if isinstance(item, tuple) else str(item)
                words += [f"--{name.replace('_', '-')}", shown]
        section = "\n\n".join(
            [
                "## Training",
                f"Trained on {result.text_bytes / 1e6:,.1f} MB of text ({result.tokens:,} tokens, {result.passes:g} "
                f"passes), {self.recipe.kept_share if self.text.keep else 0:.0%} of it kept text. Bits per byte of "
                f"held-out text, less is better ([curves]({PLOT}), [log]({LOG})):",
                table([*heads], [[code(row[0]), *row[1:]] for row in rows]),
                made_by(public_command([*words, "--out", "trained"]), REPORT),
            ]
        )
        state = (
            f"**Trained** after its vocabulary was changed, and blended with {result.share:g} of the weights before."
        )
        log = {"result": result.as_dict(), "settings": self.settings, "history": history}
        with new_folder(self.out, replaceable=None) as partial:
            job.write(result.share, partial)
            copy_others(self.folder, self.folder, partial)
            (partial / LOG).write_text(json.dumps(log, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            (partial / PLOT).write_text(plot(history, [*result.before]), encoding="utf-8")
            (partial / CARD).write_bytes(trained_card([self.folder], state, section))
            write_report(partial, "train", options, {"adapted": self.folder}, result.as_dict())


_SHAPE = (("num_hidden_layers", "n_layer"), ("hidden_size", "n_embd"))


def _free_memory(loaded: LoadedModel) -> int:
    import torch

    if loaded.hardware.on_gpu:
        held = 4 * sum(weight.numel() for weight in loaded.model.parameters())
        return int(torch.cuda.mem_get_info()[0]) + held
    return (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else 1 << 60
    )


def chosen_share(
    shares: Mapping[float, Mapping[str, float]], before: Mapping[str, float], kept: Any
) -> tuple[float, bool]:
    """The smallest share with which all kept text is at most 1 % worse than before, and whether there is one.

    If there is none, the share with which the worst kept text is best.

    >>> chosen_share({0.0: {"en": 1.2}, 0.1: {"en": 1.005}, 0.2: {"en": 1.0}}, {"en": 1.0}, ["en"])
    (0.1, True)
    >>> chosen_share({0.0: {"en": 1.2}, 0.1: {"en": 1.1}}, {"en": 1.0}, ["en"])
    (0.1, False)
    """
    worst = {share: max(scores[name] / before[name] - 1 for name in kept) for share, scores in shares.items()}
    enough = [share for share, loss in worst.items() if loss <= KEPT_LIMIT + 1e-9]
    return (min(enough), True) if enough else (min(worst, key=lambda share: (worst[share], share)), False)
