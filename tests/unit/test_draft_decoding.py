"""Speculative decoding with an EAGLE-3 draft before and after its head is cut: the same text, by the target."""

import json

import pytest
from tiny_models import model_in, tiny_llama, torch

import tokengraft as tg

WIDTH, ROUND = 32, 4
"""The width of the target, and how many tokens the draft proposes at a time."""
PROMPTS, LENGTH = 6, 24


class Eagle3(torch.nn.Module):
    """A draft as EAGLE-3 has it: features of three layers of the target, one layer of attention, a head of its own."""

    def __init__(self, rows, head):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(rows, WIDTH)
        self.fc = torch.nn.Linear(3 * WIDTH, WIDTH, bias=False)
        parts = {name: torch.nn.Linear(2 * WIDTH, WIDTH, bias=False) for name in ("q_proj", "k_proj", "v_proj")}
        self.midlayer = torch.nn.ModuleDict(parts | {"mlp": torch.nn.Linear(WIDTH, WIDTH, bias=False)})
        self.norm = torch.nn.RMSNorm(WIDTH)
        self.lm_head = torch.nn.Linear(WIDTH, head, bias=False)
        self.register_buffer("d2t", torch.zeros(head, dtype=torch.long))
        self.register_buffer("t2d", torch.ones(rows, dtype=torch.bool))

    def forward(self, features, tokens):
        """The states after every token, from the features at the token before it."""
        both = torch.cat([self.embed_tokens(tokens), features], -1)
        query, key, value = (self.midlayer[name](both)[None] for name in ("q_proj", "k_proj", "v_proj"))
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)[0]
        state = features + attended
        return state + self.midlayer["mlp"](torch.nn.functional.silu(state))

    def logits(self, states):
        """Logits over the ids of the target, as vLLM scatters them."""
        found = self.lm_head(self.norm(states))
        scattered = torch.full((*found.shape[:-1], len(self.t2d)), -torch.inf)
        scattered[..., torch.arange(len(self.d2t)) + self.d2t] = found
        return scattered


def features_of(target, ids):
    """The hidden states of three layers at every token, and what the target says next."""
    with torch.no_grad():
        out = target(torch.tensor([ids]), output_hidden_states=True)
    return torch.cat([layer[0] for layer in out.hidden_states], -1), out.logits[0].argmax(-1).tolist()


def generate(target, draft, prompt):
    """The tokens of greedy speculative decoding, and how many were proposed and accepted."""
    ids, proposed, accepted = [*prompt], 0, 0
    ids.append(features_of(target, ids)[1][-1])
    while len(ids) < LENGTH:
        hidden, _ = features_of(target, ids[:-1])
        guesses, features = [], draft.fc(hidden)
        for _ in range(ROUND):
            state = draft(features, torch.tensor([*ids[1:], *guesses]))
            guesses.append(int(draft.logits(state[-1]).argmax()))
            features = torch.cat([features, state[-1:]])
        _, says = features_of(target, [*ids, *guesses])
        right = says[len(ids) - 1 :]
        n = next((n for n, (guess, said) in enumerate(zip(guesses, right, strict=False)) if guess != said), ROUND)
        proposed, accepted = proposed + ROUND, accepted + n
        ids += [*guesses[:n], right[n]]
    return ids[:LENGTH], proposed, accepted


def alone(target, prompt):
    ids = [*prompt]
    while len(ids) < LENGTH:
        ids.append(features_of(target, ids)[1][-1])
    return ids


def trained(target, texts):
    """A draft with the vocabulary of the target that has learned to continue what the target writes."""
    torch.manual_seed(3)
    draft = Eagle3(target.config.vocab_size, target.config.vocab_size)
    optimizer = torch.optim.Adam(draft.parameters(), 3e-3)
    known = [(features_of(target, ids)[0], torch.tensor(ids)) for ids in texts]
    for _ in range(60):
        for hidden, ids in known:
            states = draft(draft.fc(hidden[:-2]), ids[1:-1])
            loss = torch.nn.functional.cross_entropy(draft.logits(states), ids[2:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return draft.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def speculating(tmp_path_factory):
    """A folder with a target and its draft; both as modules; prompts, and what the target writes after them."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("speculating")
    rows = tiny_llama(folder / "model", tied=False).n_rows
    target = model_in(folder / "model").eval()
    prompts = [[start, start + 1] for start in range(0, 10 * PROMPTS, 10)]
    texts = [alone(target, prompt) for prompt in prompts]
    full = trained(target, texts)
    (folder / "draft").mkdir()
    save_file(full.state_dict(), folder / "draft" / "model.safetensors", {"format": "pt"})
    config = {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": rows, "draft_vocab_size": rows}
    (folder / "draft" / "config.json").write_text(json.dumps(config))
    return folder, target, full, prompts, texts


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_a_draft_with_a_cut_head_gives_exactly_the_text_of_the_target(tmp_path, speculating, share):
    """By cutting ids that the target writes, fewer proposals are accepted, and the text is the same."""
    from safetensors.torch import load_file

    folder, target, full, prompts, texts = speculating
    written = sorted({i for text in texts for i in text})
    ids = written[: int(share * len(written))]
    tg.draft(folder / "model", None, tmp_path / "cut", ids=ids, cut=folder / "draft")
    cut = Eagle3(target.config.vocab_size, len(ids))
    cut.load_state_dict(load_file(tmp_path / "cut" / "model.safetensors"))
    rates = []
    for draft in (full, cut.requires_grad_(False)):
        done = [generate(target, draft, prompt) for prompt in prompts]
        assert [ids for ids, *_ in done] == texts
        rates.append(sum(accepted for *_, accepted in done) / sum(proposed for _, proposed, _ in done))
    assert rates[0] > 0.2
    assert rates[1] > 0.1
    assert rates[1] >= rates[0] if share == 1 else rates[1] < rates[0]
