"""`train`: continues the pre-training of an adapted model on `transformers.Trainer`, and blends the result.

The state is saved in `OUT.work`, and the same call goes on from there. At the end, `OUT` is the adapted model with
other weights: its files, shards and types, with a card, a log, a plot and a page.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tokengraft.checkpoint.blend import WeightBlend, copy_others, write_report
from tokengraft.checkpoint.folder import open_checkpoint, require_no_adapter
from tokengraft.checkpoint.in_memory import require_torch
from tokengraft.checkpoint.model_card import base_name, public_command, size_text, trained_card
from tokengraft.checkpoint.model_files import CARD, LOG, PAGE, PLOT
from tokengraft.corpus.open import Corpus, local_files
from tokengraft.corpus.options import ReadOptions
from tokengraft.errors import OptionError, OutputError, option, require_type
from tokengraft.formats.sources import load_folder
from tokengraft.measure.bits import bits, chunk_bytes, chunks, score_models, sequences
from tokengraft.measure.models import LoadedModel, free_memory, hardware, load_model
from tokengraft.measure.segments import LINES, Text
from tokengraft.output.atomic import new_folder, require_distinct, require_new
from tokengraft.progress import Stages, stage, stages
from tokengraft.training.options import KEPT_LIMIT, WARN_LIMIT, TrainOptions
from tokengraft.training.plan import TrainingPlan
from tokengraft.training.result import Training, chosen_share, result_page, training_section
from tokengraft.training.text import training_text

WORK = ".work"
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
        held_out: Text to score, by the name of the text of ``text`` or ``keep`` that it belongs to; without names,
            these are "text" and "keep". That of ``keep`` must not get worse. By default, documents are held out.
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
    require_new(out, force=None)
    texts = text if isinstance(text, Mapping) else {"text": text}
    kept = keep if isinstance(keep, Mapping) else {} if keep is None else {"keep": keep}
    if both := {*texts} & {*kept}:
        raise OptionError(
            f"{option('text')} and {option('keep')} both have a text {min(both)!r}",
            hint="give each another name: NAME=FILES",
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
        plan = TrainingPlan(Path(adapted), tokenizer, found, options or TrainOptions())
        run = _Run(plan, Path(out), shown)
        with _alive(shown):
            return run.result()


def _require_trainer() -> None:
    hint = 'install them: pip install "tokengraft[train]"'
    require_torch(hint)
    try:
        import_module("accelerate")
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
class _Run:
    """A training run."""

    plan: TrainingPlan
    out: Path
    shown: Stages

    @property
    def work(self) -> Path:
        """The folder with the state of the run."""
        return self.out.with_name(self.out.name + WORK)

    def result(self) -> Training:
        """Trains, blends and writes the model."""
        self._open_work()
        args = self._arguments()
        history, before, warnings = self._trained(args)
        result = self._blended(history, before, warnings) if args.process_index == 0 else None
        found: Training = _of_first_process(result, self.plan.world)
        return found

    def _open_work(self) -> None:
        path, found = self.work / "settings.json", json.loads(json.dumps(self.plan.settings))
        if path.is_file():
            with suppress(ValueError):
                if json.loads(path.read_bytes()) != found:
                    raise OutputError(
                        f"`{self.work}` is from a run with another model, text or other options",
                        hint=f"delete it to train from the beginning, or choose another {option('out')}",
                    )
        self.work.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found, indent=1) + "\n")
        partial.replace(path)

    def _arguments(self) -> Any:
        """The arguments of the Trainer."""
        from transformers import TrainingArguments

        where, steps, given = hardware(), self.plan.steps, dict(self.plan.options.trainer)
        fixed = {
            "output_dir": str(self.work),
            "learning_rate": self.plan.learning_rate,
            "lr_scheduler_type": "cosine",
            "warmup_steps": max(1, round(0.1 * steps.n)),
            "adam_beta2": 0.95,
            "max_steps": steps.n,
            "per_device_train_batch_size": steps.batch,
            "gradient_accumulation_steps": steps.per_step // self.plan.world // steps.batch,
            "train_sampling_strategy": "sequential",
            "seed": self.plan.options.seed,
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
                f"the Trainer refuses its arguments: {error}", hint=f"correct or leave out {option('trainer')}"
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
        self.shown.start("planning")
        loaded = load_model(self.plan.folder, hardware(), dtype="float32")
        (ids, n_bytes), steps, memory = self.plan.ids, self.plan.steps, self.plan.memory
        scoring, training = self.plan.seconds(loaded)
        warnings = [*self.plan.text.warnings]
        if memory > (free := _free_memory(loaded)):
            warnings.append(
                f"training needs about {memory / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; use a larger "
                "machine, or LoRA (see the guide)"
            )
        if not self.plan.text.kept:
            blended = ", and the weights are not blended" if self.plan.options.blend == "auto" else ""
            warnings.append(f"there is no kept text ({option('keep')}): other languages get worse{blended}")
        self.shown.note(
            f"{size_text(n_bytes)} to read in {self.plan.passes_read:g} passes, kept text included: "
            f"{len(ids):,} tokens, {steps.n:,} steps of {steps.per_step} × {steps.length} at a rate of "
            f"{self.plan.learning_rate:g}"
        )
        self.shown.note(
            f"about {memory / 1e9:.1f} GB of memory, {_time_text(training)} to train, and {_time_text(scoring)} to "
            "score held-out text before and after it"
        )
        if not self.plan.recipe.new_ids:
            self.shown.note("the model has no new tokens: it is trained as it is")
        for warning in warnings:
            self.shown.note(f"warning: {warning}")
        self.shown.start("scoring before training", "share")
        before = self._before(loaded)
        every = max(1, min(steps.n, round(SAVE_SECONDS / max(training / steps.n, 1e-3))))
        if "save_steps" not in self.plan.options.trainer:  # the same in all processes, which save together
            args.save_steps = _of_first_process(every, self.plan.world)
        self.shown.start("training", "tokens")
        from tokengraft.training.trainer import trained

        history = trained(self.plan, loaded, args, self.shown)
        if args.process_index == 0:
            partial = done.with_suffix(".partial")
            partial.write_text(json.dumps({"history": history, "before": before, "warnings": warnings}))
            partial.replace(done)
        return history, before, warnings

    def _before(self, loaded: LoadedModel) -> dict[str, float]:
        """Bits per byte before training."""
        size, found = chunk_bytes([self.plan.folder]), dict[str, float]()
        total = sum(len(document.encode()) for documents in self.plan.scored.values() for document in documents)
        for name, documents in self.plan.scored.items():
            text = sequences(loaded.tokenizer, [*chunks(documents, size)])
            rate = text.text_bytes / max(1, text.n_tokens)

            def report(n: int, name: str = name, rate: float = rate) -> None:
                self.shown.update(name, round(n * rate), total)

            score, _ = bits(loaded, text, progress=report)
            found[name] = score.bits / score.bytes
        return found

    def _blended(self, history: list[Any], before: dict[str, float], warnings: list[str]) -> Training:
        """Scores the shares, chooses one, and writes the model with it."""
        free_memory()
        job = WeightBlend.prepare(
            open_checkpoint(self.work / "trained"), self.plan.checkpoint, self.plan.new_ids, layout="adapted"
        )
        chosen = self.plan.options.blend if self.plan.text.kept or self.plan.options.blend != "auto" else 0.0
        texts = {name: Text(name, parts) for name, parts in self.plan.scored.items()}
        models = [model for model in (self.plan.source,) if model]
        if models:
            self.shown.start("scoring the model before its adaptation")
        unadapted = [score_models({"": model}, texts) for model in models]
        tokens = {name: tuple(found["", name][0].tokens for found in unadapted) for name in texts}
        self.shown.start("blending", "share")
        shares = dict[float, dict[str, float]]()
        for share in self.plan.shares:
            candidate = self.work / "candidate"
            shutil.rmtree(candidate, ignore_errors=True)
            candidate.mkdir()
            job.write(share, candidate)
            copy_others(self.plan.folder, self.plan.folder, candidate)
            scores = score_models({"": candidate}, texts)
            shares[share] = {name: found.bits / found.bytes for (_, name), (found, _) in scores.items()}
            self.shown.update(f"{share:g}", 1, len(self.plan.shares))
        if chosen == "auto":
            chosen, enough = chosen_share(shares, before, self.plan.text.kept)
            if not enough:
                warnings.append(
                    f"kept text is more than {KEPT_LIMIT:.0%} worse than before training with every share; a lower "
                    "--learning-rate, a larger --kept-share or fewer --passes forget less"
                )
        changes = {name: shares[float(chosen)][name] / before[name] - 1 for name in sorted(self.plan.text.kept)}
        warnings += [
            f"kept text `{name}` is {change:.1%} worse in the result than before training: do not use it as it is"
            for name, change in changes.items()
            if change > WARN_LIMIT
        ]
        scored = {name: sum(len(text.encode()) for text in parts) for name, parts in self.plan.scored.items()}
        result = Training(
            passes=self.plan.passes_read,
            steps=self.plan.steps.n,
            text_bytes=self.plan.ids[1],
            tokens=len(self.plan.ids[0]),
            learning_rate=self.plan.learning_rate,
            share=float(chosen),
            before=before,
            shares=shares,
            kept=tuple(sorted(self.plan.text.kept)),
            scored=scored,
            warnings=tuple(dict.fromkeys(warnings)),
            unadapted={
                name: score.bits / score.bytes for found in unadapted for (_, name), (score, _) in found.items()
            },
            text_tokens={name: (*some, scores["", name][0].tokens) for name, some in tokens.items()},
        )
        self._write(job, history, result)
        shutil.rmtree(self.work)
        return result

    def _write(self, job: WeightBlend, history: list[Any], result: Training) -> None:
        from tokengraft.training.callbacks import plot

        options = {
            name: value for name, value in asdict(self.plan.options).items() if value != getattr(TrainOptions(), name)
        }
        words = ["tokengraft", "train", base_name(self.plan.folder), "--text", "TEXT"]
        words += ["--keep", "TEXT"] * bool(self.plan.text.keep)
        for name, value in options.items():
            for item in value.items() if isinstance(value, Mapping) else [value]:
                shown = f"{item[0]}={item[1]}" if isinstance(item, tuple) else str(item)
                words += [f"--{name.replace('_', '-')}", shown]
        share = self.plan.recipe.kept_share if self.plan.text.keep else 0
        section = training_section(result, share, public_command([*words, "--out", "trained"]))
        state = (
            f"**Trained** after its vocabulary was changed, and blended with {result.share:g} of the weights before."
        )
        settings = {name: value for name, value in self.plan.settings.items() if name != "model"}
        log = {"result": result.as_dict(), "settings": settings, "history": history}
        with new_folder(self.out, replaceable=None) as partial:
            job.write(result.share, partial)
            copy_others(self.plan.folder, self.plan.folder, partial)
            (partial / LOG).write_text(json.dumps(log, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            curves = plot(history, [*result.before])
            (partial / PLOT).write_text(curves, encoding="utf-8")
            (partial / PAGE).write_text(result_page(base_name(self.plan.folder), result, curves), encoding="utf-8")
            card = trained_card([self.plan.folder], state, section)
            card = card.replace(b" `adaptation.json` has the inputs with their hashes.", b"")  # it is not copied
            card = card.replace(b"and the model itself (bits per byte, downstream tasks)", b"and downstream tasks")
            (partial / CARD).write_bytes(card)
            write_report(partial, "train", options, {"adapted": self.plan.folder}, result.as_dict())


def _of_first_process(value: Any, world: int) -> Any:
    """The value of the first process, in all of them."""
    values = [value]
    if world > 1:
        import torch

        torch.distributed.broadcast_object_list(values)
    return values[0]


def _free_memory(loaded: LoadedModel) -> int:
    import torch

    if loaded.hardware.on_gpu:
        held = 4 * sum(int(weight.numel()) for weight in loaded.model.parameters())
        return int(torch.cuda.mem_get_info()[0]) + held
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    return loaded.hardware.memory


def _time_text(seconds: float) -> str:
    """A time to plan with.

    >>> _time_text(42), _time_text(540), _time_text(35_000)
    ('1 min', '9 min', '9.7 h')
    """
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{max(1, round(seconds / 60))} min"
