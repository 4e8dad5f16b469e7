"""The folder in which the snippets of the documentation run."""

import json
import shutil
from pathlib import Path

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint, eagle
from hostile import HOSTILE, MODEL

import tokengraft as tg


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with what the pages speak of, as the working directory."""
    checkpoint(tmp_path / "model")
    checkpoint(tmp_path / "draft")
    checkpoint(tmp_path / "padded", rows=448)
    eagle(tmp_path / "eagle3", tg.load(tmp_path / "model").n_rows)
    builders.write_pieces(tmp_path / "llama")
    web = "".join(json.dumps({"content": text}) + "\n" for text in ESTONIAN[:9])
    texts = {"et.txt": "\n".join(ESTONIAN), "en.txt": "\n".join(ENGLISH), "lv.txt": "\n".join(LATVIAN)}
    texts |= {
        "hi.txt": "\n".join(f"हिन्दी की किताब {n} पढ़ती है" for n in range(99)),
        "web.jsonl": web,
        "broken.jsonl": web + "{",
        "held-out.txt": "\n".join(text.replace("põdrad", "kassid") for text in ESTONIAN[:9]),
        "deny.txt": "ad\n",
        "words.txt": "ibuprofen\nCOX-2\n",
        "keep.txt": "Ġcat\n",
        "recipe.toml": 'model = "model"\nkeep = "en.txt"\nswap = 4\n\n[target]\net = "et.txt:2"\nlv = "lv.txt"\n',
        "special-tokens.json": '{"<|start|>": 500, "<|end|>": 501}',
    }
    (tmp_path / "ranks.tiktoken").write_bytes(builders.tiktoken_file(builders.ranks_of(builders.byte_level())))
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "corpus").mkdir()
    for name, documents in {"et": ESTONIAN, "en": ENGLISH}.items():
        pq.write_table(pa.table({"text": documents}), tmp_path / "corpus" / f"{name}.parquet", row_group_size=100)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def runnable_model(place):
    """Gives `model` and `draft` tiny Llamas that transformers can run, in place of noise. Needs torch."""
    torch = pytest.importorskip("torch", reason="torch is not installed: the snippets that need it are not run")
    transformers = pytest.importorskip("transformers")
    for folder, layers in ((place / "model", 2), (place / "draft", 1)):
        for name in ("model.safetensors", "config.json", "generation_config.json", "pytorch_model.bin"):
            (folder / name).unlink()
        torch.manual_seed(11)
        size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": layers, "num_attention_heads": 4}
        start, end = (token.id for token in tg.load(folder).added)
        ids = {"vocab_size": tg.load(folder).n_rows, "bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
        config = transformers.LlamaConfig(num_key_value_heads=2, head_dim=8, **size, **ids)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


@pytest.fixture(scope="session")
def browser():
    """Chromium, without network; skipped where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not found:
        pytest.skip("no chromium: `apt install chromium` to run this")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """A function that opens a report. Errors on the console, and any request, fail the test."""
    problems, contexts = [], []

    def open_page(path, scheme="light", width=1280):
        context = browser.new_context(
            offline=True, color_scheme=scheme, viewport={"width": width, "height": 900}, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if request.url[:4] == "http" else None)
        page.goto(Path(path).as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="session")
def adapted(tmp_path_factory):
    """A model that was adapted to hostile text, and what it was adapted with."""
    folder = tmp_path_factory.mktemp("report")
    checkpoint(folder / MODEL)
    texts = {"et": [*HOSTILE, *ESTONIAN], "lv": LATVIAN, "en": ENGLISH}
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    targets = {"et": tg.Target(folder / "et.txt", 2), "lv": tg.Target(folder / "lv.txt")}
    tg.adapt(folder / MODEL, target=targets, keep=folder / "en.txt", swap=40, out=folder / "out")
    return folder


@pytest.fixture
def page(adapted):
    return adapted / "out" / "report.html"
