"""`check_serving`: what each stack needs of a folder, against the libraries themselves where they can be installed."""

import json
import re

import builders
import checkpoints
import pytest
from checks import edit, one, outcomes

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.tokenizer.tokenizer import whole_document
from tokengraft.verify.finding import STACKS, choices_for, facts

transformers = pytest.importorskip("transformers")  # imported here, so that no process has to be started for each check


def failures(source, stack):
    """The failures of a stack. llama.cpp knows the hashes of published tokenizers only, not of tiny ones."""
    return [found for found in tg.check_serving(source, stack).failures if "pre-tokenizer hash" not in found.name]


SETTINGS = ("eos_token", "auto_map", "tokenizer_class", "chat_template")
WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def changed(folder, fields):
    """A folder after a change. A name with a dot is a file to add, or to remove if None; others are fields."""
    for name, value in fields.items():
        if "." in name and value is None:
            (folder / name).unlink()
        elif "." in name:
            (folder / name).write_text(value)
        else:
            edit(folder / ("tokenizer_config.json" if name in SETTINGS else "config.json"), **{name: value})
    return folder


@pytest.fixture
def model(tmp_path):
    config = {"pad_token_id": None, "bos_token_id": None, "num_attention_heads": 2}
    checkpoints.checkpoint(tmp_path / "model", config=config)
    return tmp_path / "model"


@pytest.fixture
def pieces(tmp_path):
    """A folder of a SentencePiece type with a `tokenizer.model` and the `tokenizer.json` of the same pieces."""
    folder = builders.write_pieces(tmp_path / "pieces")
    edit(folder / "config.json", architectures=["LlamaForCausalLM"], model_type="llama")
    return folder


def test_a_model_that_fits_has_no_failures(model):
    for stack in STACKS[:4]:
        assert failures(model, stack) == []


def test_what_cannot_be_checked_without_a_model_is_named(tmp_path):
    folder = builders.write(tmp_path / "tok", builders.byte_level())
    for source in (folder, tg.load(folder), folder / "tokenizer.json"):
        for stack in STACKS[:4]:
            assert one(source, stack, "model").detail.startswith("not checked")


def test_the_folder_is_not_changed(model):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    tg.check_serving(model, *STACKS)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


@pytest.mark.parametrize("stack", STACKS[:4])
def test_a_table_of_another_size_than_the_config_says_fails(model, stack):
    rows = tg.load(model).n_rows
    checkpoints.set_config(model, vocab_size=rows + 3)
    found = one(model, stack, "embedding rows")
    assert found.outcome == "fail"
    assert f'"vocab_size": {rows}' in found.fix
    checkpoints.set_config(model, vocab_size=rows)
    assert one(model, stack, "embedding rows").outcome == "pass"


def test_a_tokenizer_with_more_tokens_than_rows_fails(model, tmp_path):
    tok = tg.load(model)
    new = tg.extend(tok, tg.count(tok, iter(checkpoints.ESTONIAN)), 20).apply(tok)
    for path in tg.save(new, tmp_path / "new", base=tok).iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    found = one(model, "vllm", "ids")
    assert found.outcome == "fail"
    assert "transplant" in found.fix


def test_special_ids_must_exist(model):
    rows = tg.load(model).n_rows
    checkpoints.set_config(model, "generation_config.json", eos_token_id=[rows - 1, rows])
    found = one(model, "transformers", "special ids")
    assert found.outcome == "fail"
    assert found.evidence == (f"`eos_token_id` in generation_config.json is {rows}",)
    checkpoints.set_config(model, "generation_config.json", eos_token_id=rows - 1)
    checkpoints.set_config(model, image_token_id=rows + 7)  # a placeholder, which has no row
    assert one(model, "transformers", "special ids").outcome == "pass"


def of(name, **fields):
    return {"architectures": [name], **fields}


def size(vocab_size, **fields):
    return {"vocab_size": vocab_size, **dict.fromkeys(WEIGHTS), **fields}


MISTRAL = {"consolidated.safetensors": ""}
PHI = of("Phi3ForCausalLM", model_type="phi3")
TEMPLATE = {"chat_template.jinja": "{{ messages }}"}
CODE = {"tokenization_mine.py": "raise SystemExit('run')", "auto_map": {"AutoTokenizer": ["tokenization_mine.M", None]}}


@pytest.mark.parametrize(
    ("change", "check", "outcome", "text"),
    [
        # The model does not stop at the end token of the tokenizer.
        ({"eos_token": "<|start|>"}, "transformers: special ids", "note", "'<|start|>'"),
        (CODE, "transformers: code", "note", "not checked"),
        # transformers 5.22 ignores the settings of some model types.
        (of("Qwen2ForCausalLM", model_type="qwen2"), "transformers: AutoTokenizer", "fail", "does not help"),
        ({"vocab_size": None}, "vllm: embedding rows", "note", '"vocab_size": '),  # the default of its class: Gemma-3
        (MISTRAL, "vllm: format", "fail", "consolidated.safetensors"),
        (MISTRAL | {"model.safetensors": None}, "vllm: format", "note", "consolidated.safetensors"),
        ({}, "vllm: padding", "note", "448"),
        (size(448), "vllm: padding", "pass", "448"),
        (size(258_048), "vllm: LoRA", "pass", "258,048"),
        (size(262_144), "vllm: LoRA", "note", "258,048"),
        (size(32_016), "llama.cpp: special sizes", "note", "CodeLlama"),
        (size(49_152), "llama.cpp: special sizes", "note", "start of text"),
        (size(49_152, **of("Qwen2ForCausalLM")), "llama.cpp: special sizes", "pass", "49,152"),
        (PHI, "llama.cpp: vocabulary", "fail", "Phi3ForCausalLM from a `tokenizer.model` alone"),
        (PHI | {"tokenizer_class": "GPT2Tokenizer"}, "llama.cpp: vocabulary", "pass", "tokenizer.json"),  # Phi-4
        ({"pad_token_id": -1}, "llama.cpp: negative ids", "fail", "`pad_token_id` is -1"),
        (of("OPTForCausalLM"), "ollama: architecture", "fail", "OPTForCausalLM"),
        (TEMPLATE, "ollama: chat template", "note", "alone"),
        (TEMPLATE | {"chat_template": "{{ messages }}"}, "ollama: chat template", "pass", ""),
    ],
)
def test_what_a_stack_reads_decides_the_outcome(model, change, check, outcome, text):
    found = one(changed(model, change), *check.split(": "))
    assert found.outcome == outcome
    assert text in " ".join([found.detail, *found.evidence, found.fix])


def test_a_class_that_rebuilds_the_tokenizer_is_found_and_the_fix_helps(model):
    changed(model, of("Qwen3ForCausalLM", model_type="qwen3", tokenizer_class="Qwen2Tokenizer"))
    for stack in ("transformers", "vllm", "llama.cpp"):
        found = one(model, stack, "AutoTokenizer")
        assert found.outcome == "fail"
        assert "tried on a copy: the ids are then the same" in found.fix
    changed(model, {"tokenizer_class": "PreTrainedTokenizerFast"})
    assert one(model, "transformers", "AutoTokenizer").outcome == "pass"


def test_a_piece_model_alone_needs_a_tokenizer_json_where_transformers_reads_it_otherwise(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(builders.llama2_like())
    found = one(tmp_path, "transformers", "AutoTokenizer")
    assert found.outcome == "fail"
    assert "--to huggingface" in found.fix


def test_llama_cpp_does_not_fill_holes_of_gemma_4(pieces):
    tok = tg.load(pieces)
    pruned = tg.prune_order(tok, tg.count(tok, iter(builders.TEXT)))[:3].apply(tok)
    for new, outcome in ((pruned, "fail"), (pruned.compact(), "pass")):
        (pieces / "tokenizer.model").unlink(missing_ok=True)
        builders.write(pieces, json.loads(whole_document(new)))
        edit(pieces / "config.json", architectures=["Gemma4ForCausalLM"])
        assert one(pieces, "llama.cpp", "vocabulary").outcome == outcome


def test_llama_cpp_takes_ids_of_gemma_for_granted(tmp_path):
    document = builders.byte_level()
    document["added_tokens"].append(builders.added(len(document["model"]["vocab"]) + 2, "<end_of_turn>"))
    folder = builders.write(tmp_path / "gemma", document)
    edit(folder / "config.json", architectures=["GemmaForCausalLM"], vocab_size=500)
    found = one(folder, "llama.cpp", "fixed ids")
    assert found.outcome == "fail"
    assert "not 107" in found.evidence[0]


def test_a_sentencepiece_model_serves_where_it_is_read(pieces):
    for stack in ("llama.cpp", "ollama", "sentencepiece"):
        assert failures(pieces, stack) == []


def test_a_sentencepiece_type_without_its_model_is_lost(pieces):
    (pieces / "tokenizer.model").unlink()
    for stack, name in (("llama.cpp", "vocabulary"), ("ollama", "vocabulary"), ("sentencepiece", "model")):
        found = one(pieces, stack, name)
        assert found.outcome == "fail"
        assert ".model` of the base" in found.fix


def test_a_piece_model_under_another_name_is_not_read(pieces):
    (pieces / "tokenizer.model").rename(pieces / "spiece.model")
    (pieces / "tokenizer.json").unlink()
    for stack in ("llama.cpp", "ollama"):
        assert one(pieces, stack, "vocabulary").outcome == "fail"
    assert tg.check_serving(pieces, "sentencepiece").passed


def test_added_tokens_that_tokenizer_json_alone_lists_are_lost_beside_a_model(pieces):
    document = json.loads((pieces / "tokenizer.json").read_text())
    n = len(document["model"]["vocab"])
    document["added_tokens"].append(builders.added(n, "<|new|>"))
    (pieces / "tokenizer.json").write_text(json.dumps(document))
    for stack in ("llama.cpp", "ollama"):
        assert one(pieces, stack, "added tokens").evidence == (f"'<|new|>' ({n})",)
    assert one(pieces, "sentencepiece", "pieces").outcome == "note"
    (pieces / "added_tokens.json").write_text(json.dumps({"<|new|>": n}))
    for stack in ("llama.cpp", "ollama"):
        assert one(pieces, stack, "added tokens").outcome == "pass"


@pytest.mark.parametrize(("token", "outcome"), [("<s>", "fail"), ({"content": "<s>"}, "pass")])
def test_ollama_stops_at_special_tokens_as_text_beside_a_model(pieces, token, outcome):
    edit(pieces / "special_tokens_map.json", additional_special_tokens=[token])
    assert one(pieces, "ollama", "special_tokens_map.json").outcome == outcome


@pytest.mark.parametrize("name", builders.TINY)
def test_ollama_gives_every_token_its_id_if_and_only_if_there_are_no_holes(tmp_path, name):
    tok = tg.load(builders.write(tmp_path / "tok", builders.TINY[name]()))
    for source in (tok, tok.compact()):
        listed = sorted(source.strings)  # by ascending id, holes left out
        same = all(token_id == place for place, token_id in enumerate(listed))
        assert (one(source, "ollama", "holes").outcome == "pass") == same
    assert same


def test_ollama_reads_added_tokens_from_tokenizer_json_alone(tmp_path):
    folder = builders.write(tmp_path / "tok", builders.byte_level())
    (folder / "tokenizer_config.json").write_text(builders.settings())
    found = one(folder, "ollama", "added tokens")
    assert (found.outcome, len(found.evidence)) == ("fail", 5)
    tok = tg.load(folder)
    extended = tg.extend(tok, tg.count(tok, iter(checkpoints.ESTONIAN)), 3).apply(tok)
    assert one(extended, "ollama", "added tokens").outcome == "pass"


def test_a_fix_by_conversion_is_one_that_works(tmp_path):
    (tmp_path / "x.tiktoken").write_bytes(builders.tiktoken_file(builders.ranks_of(builders.byte_level())))
    ranks = tg.load(tmp_path / "x.tiktoken", pattern="gpt2", special_tokens=["<s>"])
    tg.save(tg.convert(ranks, "huggingface"), tmp_path / "tok")
    assert one(tmp_path / "tok", "tiktoken", "rank file").fix == "write one: `tokengraft convert FOLDER --to tiktoken`"
    assert "--to tekken --renumber`" in one(tmp_path / "tok", "mistral-common", "rank file").fix
    pieces = builders.write(tmp_path / "pieces", builders.sentencepiece())
    for folder, stack, name in (
        (pieces, "tiktoken", "rank file"),
        (pieces, "mistral-common", "rank file"),
        (tmp_path / "tok", "sentencepiece", "model"),
    ):
        fix = one(folder, stack, name).fix
        assert "tokengraft convert" not in fix
        assert "cannot be written as" in fix


def test_every_failure_has_a_fix(model, pieces):
    checkpoints.set_config(model, vocab_size=3, pad_token_id=-1, eos_token_id=10**6, architectures=["FooForCausalLM"])
    edit(model / "tokenizer_config.json", eos_token="<|x|>", tokenizer_class="NoSuchTokenizer")
    (pieces / "tokenizer.model").unlink()
    failures = [found for folder in (model, pieces) for found in tg.check_serving(folder, *STACKS).failures]
    assert len(failures) > 10
    assert [found.name for found in failures if not found.fix] == []


def test_the_command_prints_the_fixes_and_exits_with_1_if_something_fails(model, tokengraft):
    assert "vllm: embedding rows" in tokengraft("check", model, "--for", "vllm", "--for", "ollama").out
    checkpoints.set_config(model, pad_token_id=-1)
    tokengraft("check", model, "--for", "vllm")
    out = tokengraft("check", model, "--for", "llama.cpp", code=1).out
    assert "fix: set them to null" in out
    found = tokengraft("check", model, "--base", model, "--for", "llama.cpp", "--json", code=1).json
    assert found["passed"] is False
    names = [finding["name"] for finding in found["findings"]]
    assert {"kept ids", "llama.cpp: negative ids"} <= set(names)
    assert "set them to null" in [finding["fix"] for finding in found["findings"] if finding["outcome"] == "fail"]


def test_the_command_checks_a_file_without_a_model(model, capsys):
    assert cli.main(["check", str(model / "tokenizer.json"), "--for", "ollama"]) == 0
    assert "not checked: this is a tokenizer without a model" in capsys.readouterr().out


def test_a_stack_that_is_given_twice_is_checked_once(model):
    assert tg.check_serving(model, "ollama", "ollama") == tg.check_serving(model, "ollama")


@pytest.mark.parametrize("config", ["[]", "{", "[[" * 5000])
def test_a_config_that_cannot_be_read_is_an_error(model, config):
    (model / "config.json").write_text(config)
    with pytest.raises(errors.TokengraftError, match=r"config\.json"):
        tg.check_serving(model, *STACKS)


@pytest.mark.parametrize(
    "config",
    ['{"architectures": 7, "vocab_size": "many"}', "{}", '{"text_config": 3}', '{"eos_token_id": "2", "a": 1e999}'],
)
def test_any_object_as_a_config_gives_findings(model, config):
    (model / "config.json").write_text(config)
    (model / "model.safetensors").write_bytes(b"no")
    assert len(tg.check_serving(model, *STACKS).findings) > 20


@pytest.mark.parametrize("rows", [None, 380])
def test_a_table_for_each_layer_has_a_size_of_its_own(model, rows):
    rows = rows or tg.load(model).n_rows
    checkpoints.add_tensor(model, "model.embed_tokens_per_layer.weight", (rows, 8))
    checkpoints.set_config(model, vocab_size_per_layer_input=rows)
    assert one(model, "vllm", "embedding rows").outcome == "pass"
    checkpoints.set_config(model, vocab_size_per_layer_input=rows - 1)
    assert one(model, "vllm", "embedding rows").outcome == "fail"


def test_ollama_finds_no_named_token_without_a_tokenizer_json(pieces):
    (pieces / "tokenizer.json").unlink()
    edit(pieces / "tokenizer_config.json", eos_token="</s>")
    assert one(pieces, "ollama", "named tokens").outcome == "fail"
    assert one(pieces, "llama.cpp", "vocabulary").outcome == "pass"
    assert set(outcomes(pieces, "sentencepiece").values()) == {"pass"}


def test_an_unknown_stack_is_refused(model):
    for stacks in (["triton"], []):
        with pytest.raises(errors.OptionError, match="serving stack"):
            tg.check_serving(model, *stacks)
    with pytest.raises(errors.OptionError, match="serving stack"):
        choices_for(["triton"])


def test_what_an_adaptation_can_choose_for_a_stack():
    assert choices_for([]) == choices_for(["transformers"])
    assert choices_for(["ollama"]).no_holes
    both = choices_for(["vllm", "llama.cpp"])
    assert (both.no_holes, both.pad_multiple, both.avoided_rows) == (False, 64, (32_016, 49_152))


def test_a_finding_from_the_source_of_a_stack_prints_its_version(model, pieces):
    for folder in (model, pieces):
        for stack in ("vllm", "llama.cpp", "ollama"):
            found = {each.name.removeprefix(f"{stack}: "): each for each in tg.check_serving(folder, stack).findings}
            known = [name for name in found if name in facts(stack)]
            assert known
            assert all(found[name].detail.endswith(f"({facts(stack)[name].version})") for name in known)


@pytest.mark.parametrize("stack", ["vllm", "llama.cpp", "ollama", "tiktoken"])
def test_every_fact_has_a_version_and_a_fix_for_what_fails(stack):
    for fact in facts(stack).values():
        assert re.search(r"[0-9]", fact.version)
        for outcome, _, *fix in fact.cases.values():
            assert outcome in ("pass", "note", "fail")
            assert len(fix) == 1 or outcome != "fail"
