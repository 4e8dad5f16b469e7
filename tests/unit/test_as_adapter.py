"""`--as-adapter`: an adapter of PEFT with the new rows, which makes the base the adapted model. PEFT is the oracle."""

import json
import shutil
import warnings

import builders
import numpy as np
import pytest
from checkpoints import add_tensor, checkpoint, set_config, tables
from peft_models import UsesPeft

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.checkpoint.tensors import TensorFile
from tokengraft.pipeline.write import next_step

ADAPTER = tg.AdaptOptions(report=False, as_adapter=True)
WHOLE = tg.AdaptOptions(report=False)


def adapted(texts, out, options, **sizes):
    given = {"target": texts / "et.txt", "keep": texts / "en.txt", "out": texts / out, "options": options}
    return tg.adapt(texts / "model", **given, **sizes or {"swap": 30})


def config_of(folder):
    return json.loads((folder / "adapter_config.json").read_bytes())


class TestPeft(UsesPeft):
    """What PEFT makes of the folder."""

    def logits(self, model, tokenizer):
        ids = tokenizer.encode("põdrad põõsas õunad õues ja kassid the cat sat")
        with self.torch.no_grad():
            return model(self.torch.tensor([ids])).logits

    def loaded(self, texts, out, **options):
        """The base with the adapter. A warning, such as one of missing keys, is an error."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
            return self.peft.PeftModel.from_pretrained(self.tiny.model_in(texts / "model"), texts / out, **options)

    @pytest.mark.parametrize("rows", [None, 512], ids=["exact", "padded"])
    @pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
    def test_base_and_adapter_are_the_adapted_model_to_the_bit(self, texts, tied, rows):
        self.tiny.tiny_llama(texts / "model", tied=tied, **({"vocab_size": rows} if rows else {}))
        whole, done = adapted(texts, "whole", WHOLE), adapted(texts, "adapter", ADAPTER)
        assert done.tokenizer.ids == whole.tokenizer.ids
        wanted = self.logits(self.tiny.model_in(texts / "whole"), whole.tokenizer)
        tokenizer = tg.load(texts / "adapter")
        for options in ({}, {"is_trainable": True}, {"low_cpu_mem_usage": True}):
            assert self.torch.equal(self.logits(self.loaded(texts, "adapter", **options), tokenizer), wanted)
        merged = self.loaded(texts, "adapter").merge_and_unload()
        assert self.torch.equal(self.logits(merged, tokenizer), wanted)
        plain = self.tiny.model_in(texts / "whole").state_dict()
        assert all(self.torch.equal(merged.state_dict()[name], weight) for name, weight in plain.items())
        assert not self.torch.equal(self.logits(self.tiny.model_in(texts / "model"), tokenizer), wanted)

    @pytest.mark.parametrize("document", [builders.unigram(), builders.word_piece()], ids=["unigram", "word-piece"])
    def test_a_swap_of_a_model_without_merges_is_the_adapted_model_too(self, texts, document):
        self.tiny.tiny_llama(texts / "model", document=document)
        sizes = {"swap": 3}
        whole, done = adapted(texts, "whole", WHOLE, **sizes), adapted(texts, "adapter", ADAPTER, **sizes)
        assert done.plan.summary[:5] == (len(done.base) - 3, 0, 3, 3, 0)
        wanted = self.logits(self.tiny.model_in(texts / "whole"), whole.tokenizer)
        assert self.torch.equal(self.logits(self.loaded(texts, "adapter"), done.tokenizer), wanted)

    def test_the_command_that_is_printed_makes_a_folder_to_train(self, texts, monkeypatch):
        self.tiny.tiny_llama(texts / "model", tied=True)
        done = adapted(texts, "adapter", ADAPTER)
        monkeypatch.chdir(texts)
        _, option, code = next_step(done, "adapter").command
        assert option == "-c"
        exec(code, {})
        assert tg.load("adapter-merged").ids == done.tokenizer.ids
        assert (texts / "adapter-merged" / "training.json").read_bytes() == (
            texts / "adapter/training.json"
        ).read_bytes()
        assert self.tiny.model_in(texts / "adapter-merged").get_input_embeddings().weight.shape[0] == done.rows[1]

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    def test_a_model_in_16_bits_is_the_adapted_model_in_16_and_32_bits(self, texts, dtype):
        self.tiny.tiny_llama(texts / "model", tied=False)
        kind = getattr(self.torch, dtype)
        self.tiny.model_in(texts / "model").to(kind).save_pretrained(texts / "model")
        whole = adapted(texts, "whole", WHOLE)
        adapted(texts, "adapter", ADAPTER)
        written = TensorFile.open(texts / "adapter" / "adapter_model.safetensors").tensors.values()
        assert {info.dtype for info in written} == {{"bfloat16": "BF16", "float16": "F16"}[dtype]}
        for loaded in (kind, self.torch.float32):
            auto = self.tiny.transformers.AutoModelForCausalLM
            models = [auto.from_pretrained(texts / name, dtype=loaded).eval() for name in ("model", "whole")]
            model = self.peft.PeftModel.from_pretrained(models[0], texts / "adapter")
            wanted = self.logits(models[1], whole.tokenizer)
            assert self.torch.equal(self.logits(model, whole.tokenizer), wanted)

    @pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
    @pytest.mark.filterwarnings("ignore")
    def test_training_goes_on_from_it_and_changes_only_its_rows(self, texts, tied):
        self.tiny.tiny_llama(texts / "model", tied=tied)
        done = adapted(texts, "adapter", ADAPTER)
        model = self.loaded(texts, "adapter", is_trainable=True)
        start = {name: weight.clone() for name, weight in model.state_dict().items()}
        ids = self.torch.tensor([done.tokenizer.encode("põdrad põõsas õunad õues ja kassid koerad jooksevad")])
        model(input_ids=ids, labels=ids).loss.backward()
        self.torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=1e-2).step()
        changed = {name for name, w in model.state_dict().items() if not self.torch.equal(w, start[name])}
        assert changed
        assert all("trainable_tokens_delta" in name for name in changed)
        model.save_pretrained(texts / "trained")
        assert tables(texts / "trained").keys() == tables(texts / "adapter").keys()
        wanted = self.logits(model, done.tokenizer)
        assert self.torch.equal(self.logits(self.loaded(texts, "trained"), done.tokenizer), wanted)

    @pytest.mark.filterwarnings("ignore")
    def test_lora_layers_trained_on_the_merged_model_are_one_adapter_for_the_base(self, texts):
        self.tiny.tiny_llama(texts / "model", tied=True, vocab_size=512)
        done = adapted(texts, "adapter", ADAPTER)
        settings = json.loads((texts / "adapter" / "training.json").read_bytes())["lora"]
        assert settings["trainable_token_indices"] == config_of(texts / "adapter")["trainable_token_indices"]
        merged = self.loaded(texts, "adapter").merge_and_unload()
        model = self.peft.get_peft_model(merged, self.peft.LoraConfig(**settings))
        with self.torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.requires_grad:
                    weight += 0.01 if "lora_B" in name else 0.0
        model.save_pretrained(texts / "trained")
        wanted = self.logits(model, done.tokenizer)
        assert self.torch.equal(self.logits(self.loaded(texts, "trained"), done.tokenizer), wanted)

    SUPPORTED = ("llama", "llama-tied", "mistral", "qwen2", "gemma", "gemma3", "cohere2", "gpt2", "opt", "bloom")
    REFUSED = ("phi", "gptj", "gpt-neox", "mpt", "mamba", "gemma3n", "qwen2.5-vl", "llava", "llama-without-head")

    @pytest.mark.parametrize("name", SUPPORTED)
    def test_an_architecture_is_the_adapted_model(self, texts, name):
        base, kind = self.tiny.tiny_model(name, texts / "model")
        order = tg.prune_order(base, tg.count(base, texts / "en.txt"))[:20]
        pruned = order.apply(base)
        new = tg.extend(pruned, tg.count(pruned, texts / "et.txt"), 20).apply(pruned)
        tg.transplant(texts / "model", new, texts / "whole")
        tg.transplant(texts / "model", new, texts / "adapter", as_adapter=True)
        model, whole = (kind.from_pretrained(texts / part).eval() for part in ("model", "whole"))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*missing.*")
            model = self.peft.PeftModel.from_pretrained(model, texts / "adapter")
        assert self.torch.equal(self.logits(model, new), self.logits(whole, new))

    @pytest.mark.parametrize("name", REFUSED)
    def test_an_architecture_that_peft_cannot_express_is_refused(self, texts, name):
        base, _ = self.tiny.tiny_model(name, texts / "model")
        with pytest.raises(errors.CheckpointError, match="adapter") as caught:
            tg.transplant(texts / "model", base, None, as_adapter=True)
        assert "leave out `as_adapter`" in caught.value.hint


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("head", [True, False], ids=["untied", "tied"])
def test_the_rows_are_those_of_the_adapted_model_and_nothing_else_is_written(texts, head, shards):
    checkpoint(texts / "model", head=head, shards=shards)
    whole, done = adapted(texts, "whole", WHOLE), adapted(texts, "adapter", ADAPTER)
    assert whole.tokenizer.ids == done.tokenizer.ids
    modules = ["embed_tokens", "lm_head"] if head else ["embed_tokens"]
    config = config_of(texts / "adapter")
    assert [*config["trainable_token_indices"]] == modules
    assert config["base_model_name_or_path"] == str(texts / "model")
    ids = config["trainable_token_indices"]["embed_tokens"]
    assert ids == sorted(done.tokenizer.ids[string] for string in done.tokenizer.ids if string not in done.base.ids)
    written, expected = tables(texts / "adapter"), tables(texts / "whole")
    paths = ["model.embed_tokens", "lm_head"][: len(modules)]
    names = {f"base_model.model.{path}.token_adapter.trainable_tokens_delta": f"{path}.weight" for path in paths}
    assert written.keys() == names.keys()
    for name, table in names.items():
        assert np.array_equal(written[name], expected[table][ids])
    files = {path.name for path in (texts / "adapter").iterdir()}
    assert files == {
        *(
            "README.md",
            "adapter_config.json",
            "adapter_model.safetensors",
            "adaptation.json",
            "training.json",
            "tokengraft.json",
        ),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    assert done.transplant.adapter_rows == tuple(ids)
    assert {*json.loads((texts / "adapter" / "tokengraft.json").read_bytes())["files"]} == files - {"tokengraft.json"}


def test_rows_of_holes_are_in_the_adapter_too(texts):
    base = checkpoint(texts / "full")
    holed = tg.prune_order(base, tg.count(base, texts / "en.txt"))[:9].apply(base)
    tg.transplant(texts / "full", holed, texts / "model", options=tg.TransplantOptions(hole_rows="keep"))
    whole, done = adapted(texts, "whole", WHOLE), adapted(texts, "adapter", ADAPTER)
    holes = {i for i, source in enumerate(done.plan.sources) if source is None}
    new = {i for i, source in enumerate(done.plan.sources) if isinstance(source, tuple)}
    assert holes
    assert {*done.transplant.adapter_rows} == holes | new
    table, written = tables(texts / "model")["lm_head.weight"], tables(texts / "adapter")
    table[[*done.transplant.adapter_rows]] = written["base_model.model.lm_head.token_adapter.trainable_tokens_delta"]
    assert np.array_equal(table, tables(texts / "whole")["lm_head.weight"])
    assert whole.transplant.suppressed == done.transplant.suppressed == len(holes)


def test_suppressed_ids_are_in_a_generation_config_with_a_warning(texts):
    base = checkpoint(texts / "model", rows=420)
    adapted(texts, "whole", WHOLE)
    done = adapted(texts, "adapter", ADAPTER)
    assert done.transplant.suppressed == 420 - base.n_rows
    name = "generation_config.json"
    assert (texts / "adapter" / name).read_bytes() == (texts / "whole" / name).read_bytes()
    assert any(name in warning for warning in done.warnings)


def test_a_record_repeats_an_adapter_to_the_byte_and_force_replaces_it(texts):
    checkpoint(texts / "model")
    adapted(texts, "adapter", ADAPTER)
    record = shutil.copy(texts / "adapter" / "adaptation.json", texts / "record.json")
    before = {path.name: path.read_bytes() for path in (texts / "adapter").iterdir()}
    assert cli.main(["adapt", "--recipe", str(record), "--out", str(texts / "adapter"), "--force"]) == 0
    after = {path.name: path.read_bytes() for path in (texts / "adapter").iterdir()}
    named = {"adaptation.json", "tokengraft.json", "README.md"}  # they have the command, which Python has not
    assert {name for name in before if before[name] != after[name]} <= named
    assert before.keys() == after.keys()


@pytest.mark.parametrize(
    "sizes", [{"add": 10}, {"remove": 10}, {"add": 10, "remove": 5}, {"add": 10, "remove": 10}], ids=str
)
def test_other_changes_than_a_swap_are_refused_before_text_is_read(texts, sizes):
    checkpoint(texts / "model")
    with pytest.raises(errors.OptionError, match="as_adapter") as caught:
        adapted(texts, "out", ADAPTER, **sizes)
    assert "swap" in caught.value.hint
    assert "drop `as_adapter`" in caught.value.hint
    assert not (texts / "out").exists()


def test_options_without_effect_on_an_adapter_are_refused(texts):
    base = checkpoint(texts / "model")
    with pytest.raises(errors.OptionError, match="`as_adapter` and `stacks` do not go together"):
        adapted(texts, "out", tg.AdaptOptions(as_adapter=True, stacks=("vllm",)))
    tokenizer = tg.save(base, texts / "tokenizer", verify=False)
    with pytest.raises(errors.OptionError, match="without weights"):
        tg.adapt(tokenizer, target=texts / "et.txt", swap=10, out=texts / "out", options=ADAPTER)
    for options in (tg.TransplantOptions(hard_link=True), tg.TransplantOptions(verify=True)):
        with pytest.raises(errors.OptionError, match="as_adapter"):
            tg.transplant(texts / "model", base, texts / "out", as_adapter=True, options=options)


def test_a_change_of_rows_and_no_change_are_refused(texts):
    base = checkpoint(texts / "model")
    more = tg.extend(base, tg.count(base, texts / "et.txt"), 16).apply(base)
    with pytest.raises(errors.OptionError, match=r"397 rows.*413"):
        tg.transplant(texts / "model", more, texts / "out", as_adapter=True)
    with pytest.raises(errors.OptionError, match=r"397 rows.*448"):
        tg.transplant(
            texts / "model", base, texts / "out", as_adapter=True, options=tg.TransplantOptions(pad_multiple=64)
        )
    with pytest.raises(errors.OptionError, match="no row changes"):
        tg.transplant(texts / "model", base, texts / "out", as_adapter=True)


@pytest.mark.parametrize(
    ("made", "config", "message"),
    [
        ({"bias": True}, {}, "lm_head.bias"),
        ({}, {"tie_word_embeddings": None}, "tie_word_embeddings"),
        ({}, {"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"head": False}, {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({}, {"architectures": ["OtherForCausalLM"]}, "OtherForCausalLM"),
    ],
    ids=str,
)
def test_tables_that_peft_would_take_for_others_are_refused(texts, made, config, message):
    base = checkpoint(texts / "model", **made)
    set_config(texts / "model", **config)
    with pytest.raises(errors.CheckpointError, match=message):
        tg.transplant(texts / "model", base, None, as_adapter=True)


def test_further_tables_are_refused(texts):
    base = checkpoint(texts / "model")
    add_tensor(texts / "model", "model.layers.2.embed_tokens.weight", (base.n_rows, 16))
    with pytest.raises(errors.CheckpointError, match=r"layers\.2\.embed_tokens"):
        tg.transplant(texts / "model", base, None, as_adapter=True)


def test_the_command_says_how_to_load_it(model, texts, tokengraft):
    given = ["--target", texts / "et.txt", "--keep", texts / "en.txt", "--swap", 30, "--out", texts / "out"]
    shown = tokengraft("adapt", model, *given, "--as-adapter")
    assert "PeftModel.from_pretrained" in shown.err
    assert "30 rows of embed_tokens and lm_head" in shown.out
    assert "the command is in the report" in shown.err
