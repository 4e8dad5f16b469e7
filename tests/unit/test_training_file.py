"""`training.json`: what `adapt` tells a training run, and that PEFT can use it as it is."""

import json

import pytest
from checkpoints import checkpoint

import tokengraft as tg
from tokengraft import cli
from tokengraft.counts.count import count_with_hold_out

OPTIONS = tg.AdaptOptions(report=False)


def adapted(place, out="out", options=OPTIONS, **sizes):
    """The adaptation of the model in a folder to Estonian, and its `training.json`."""
    done = tg.adapt(
        place / "model", target=place / "et.txt", keep=place / "en.txt", out=place / out, options=options, **sizes
    )
    return done, json.loads((place / out / "training.json").read_bytes())


@pytest.mark.parametrize("sizes", [{"swap": 30}, {"add": 30}, {"add": 10, "remove": 30}], ids=str)
def test_it_lists_the_new_rows_with_their_frequency_in_the_counted_text(texts, sizes):
    checkpoint(texts / "model")
    done, found = adapted(texts, **sizes)
    base, new = done.base, done.tokenizer
    assert found["new_ids"] == sorted(new.ids[string] for string in new.ids if string not in base.ids)
    held = {text for name in ("target", "keep") for text in held_out(texts, name, base)}
    documents = [line for name in ("et", "en") for line in (texts / f"{name}.txt").read_text().splitlines()]
    ids = [token for line in documents if line not in held for token in new.encode(line)]
    assert found["frequency"] == [ids.count(token_id) for token_id in found["new_ids"]]
    assert found["counted_tokens"] == len(ids)
    assert found["kept_share"] == 0.1
    rare = [i for i, times in zip(found["new_ids"], found["frequency"], strict=True) if times < found["rare_below"]]
    assert found["rare_ids"] == rare
    assert found["embedding_rows"] == done.transplant.rows_after


def test_rare_rows_are_those_expected_in_the_training_text(texts, capsys, tokengraft):
    checkpoint(texts / "model")
    _, default = adapted(texts, add=30)
    n_bytes = default["counted"]["target"]

    def of(out, training_text):
        size = tg.measure.SizeOptions(multiple=64, training_text=training_text)
        return adapted(texts, out, tg.AdaptOptions(report=False, size=size), add=30)

    (short, little), (_, same), (long, much) = (of(f"{n}", n) for n in (n_bytes // 5, n_bytes, 10**10))
    assert "training_text" not in default
    assert same == default | {"training_text": n_bytes}
    rare = [
        i for i, n in zip(default["new_ids"], default["frequency"], strict=True) if n * (n_bytes // 5) < 100 * n_bytes
    ]
    assert little["rare_ids"] == rare != default["rare_ids"]
    never = [i for i, n in zip(default["new_ids"], default["frequency"], strict=True) if not n]
    assert (much["rare_ids"], much["training_text"]) == (never, 10**10)
    assert little["frequency"] == much["frequency"] == default["frequency"]
    for done, n in ((short, n_bytes // 5), (long, 10**10)):
        (found,) = (warning for warning in done.warnings if "new tokens occur fewer than" in warning)
        assert f"fewer than 100 times in {n:,} bytes of training text" in found
    command = ["adapt", "model", "--target", "et.txt", "--keep", "en.txt", "--quiet", "--no-report"]
    command = [str(texts / word) if (texts / word).exists() else word for word in command]
    assert cli.main([*command, "--add", "30", "--training-text", "10GB", "--out", str(texts / "by-command")]) == 0
    record = json.loads((texts / "by-command" / "adaptation.json").read_bytes())["request"]
    assert record["options"]["training_text"] == 10**10
    repeat = ["adapt", "--recipe", str(texts / "by-command" / "adaptation.json"), "--quiet"]
    assert cli.main([*repeat, "--out", str(texts / "again")]) == 0
    for path in (texts / "by-command").iterdir():
        assert path.read_bytes() == (texts / "again" / path.name).read_bytes()
    capsys.readouterr()
    for more, message in (
        (["--remove", "5", "--training-text", "1MB"], "--training-text has no effect without --add or --swap"),
        (["--add", "5", "--training-text", "0"], "--training-text is 0"),
        (["--add", "5", "--training-text", "1MB", "--max-add", "9"], "--max-add has no effect"),
    ):
        assert message in tokengraft(*command, *more, "--out", texts / "no", code=2).err
        assert not (texts / "no").exists()


def held_out(texts, name, base):
    path = texts / ("et.txt" if name == "target" else "en.txt")
    options = {name: getattr(OPTIONS, name) for name in ("hold_out", "read_options", "count_options")}
    return count_with_hold_out(base, path, **options).held_out


def test_it_belongs_to_the_result_and_is_replaced_with_it(texts):
    checkpoint(texts / "model")
    adapted(texts, swap=30)
    assert "training.json" in json.loads((texts / "out" / "tokengraft.json").read_bytes())["files"]
    forced = tg.AdaptOptions(report=False, force=True)
    tg.adapt(texts / "model", target=texts / "et.txt", out=texts / "out", remove=10, options=forced)
    assert not (texts / "out" / "training.json").exists()


def test_it_is_not_carried_over_to_another_vocabulary(texts):
    checkpoint(texts / "model")
    adapted(texts, swap=30)
    tg.transplant(texts / "out", texts / "model", texts / "back")
    assert not (texts / "back" / "training.json").exists()


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.filterwarnings("ignore")
def test_peft_trains_only_the_new_rows_and_its_adapters(texts, tied):
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    import tiny_models

    tiny_models.tiny_llama(texts / "model", tied=tied)
    done, settings = adapted(texts, swap=30)
    lora = peft.LoraConfig(**settings["lora"])
    model = peft.get_peft_model(tiny_models.model_in(texts / "out"), lora)
    before = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    ids = torch.tensor([done.tokenizer.encode("põdrad põõsas õunad õues ja kassid koerad jooksevad")])
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=1e-2)
    for _ in range(2):  # the second half of an adapter is 0 at first, so the first half has no gradient
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    after = model.state_dict()
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert changed
    assert all("lora_" in name or "trainable_tokens_delta" in name for name in changed), changed
    assert any("trainable_tokens_delta" in name for name in changed)
    merged = model.merge_and_unload()
    plain = tiny_models.model_in(texts / "out")
    new = torch.zeros(len(plain.get_input_embeddings().weight), dtype=torch.bool)
    new[settings["new_ids"]] = True
    tables = [merged.get_input_embeddings(), merged.get_output_embeddings()]
    for table, old in zip(tables, [plain.get_input_embeddings(), plain.get_output_embeddings()], strict=True):
        assert torch.equal(table.weight[~new], old.weight[~new])
        assert not torch.equal(table.weight[new], old.weight[new])
    if tied:
        assert torch.equal(tables[0].weight, tables[1].weight)
