"""The figure of README: a sentence as tokens, before and after.

    python lab/before_after.py TOKENIZER TEXT N docs/before-after.svg

TOKENIZER is extended by N tokens that are learned from TEXT.
"""

import sys
from html import escape
from pathlib import Path

import tokengraft as tg

SENTENCE = "Sügisel lendavad kured üle mere lõunasse ja kevadel tulevad nad jälle tagasi."
COLOURS = ("#cfe3ff", "#ffe2b8", "#d5f2d0", "#f6d3ec")
CHARACTER, LINE, WIDTH, MARGIN = 9.6, 34, 860, 12


def main(folder: str, text: str, n: str, out: str) -> None:
    """Writes the figure."""
    base = tg.load(folder)
    new = tg.extend(base, tg.count(base, text), int(n)).apply(base)
    rows, y = list[str](), 28
    for title, tokenizer in (("before", base), ("after", new)):
        ids = tokenizer.encode(SENTENCE)
        rows.append(f'<text class="title" x="{MARGIN}" y="{y}">{title}: {len(ids)} tokens</text>')
        boxes, y = drawn(pieces(tokenizer, ids), y + 12)
        rows += boxes
        y += 2 * LINE - 6
    style = (
        ".title{font:600 17px system-ui,sans-serif;fill:#1f2328}.token{font:16px ui-monospace,monospace;fill:#1f2328}"
        "@media(prefers-color-scheme:dark){.title{fill:#f0f6fc}}"
    )
    size = f'width="{WIDTH}" height="{y - LINE}" viewBox="0 0 {WIDTH} {y - LINE}"'
    label = escape(f"A sentence in Estonian as tokens of {Path(folder).name}, before and after {int(n):,} new tokens")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    lines = [head, f"<style>{style}</style>", *rows, "</svg>"]
    Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def pieces(tokenizer: tg.Tokenizer, ids: list[int]) -> list[str]:
    """The text of each token; a part of a character is shown as a dot."""
    texts = {token.id: token.bytes.decode(errors="replace") for token in tokenizer.tokens}
    return [texts[i].replace("\ufffd", "·") for i in ids]


def drawn(texts: list[str], y: int) -> tuple[list[str], int]:
    """Boxes with the texts, and where the last line of them begins."""
    boxes, x = list[str](), float(MARGIN)
    for place, text in enumerate(texts):
        width = CHARACTER * len(text) + 8
        if x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + LINE
        colour = COLOURS[place % len(COLOURS)]
        boxes.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="26" rx="4" fill="{colour}"/>')
        shown = escape(text).replace(" ", "\u00a0")
        boxes.append(f'<text class="token" x="{x + 4:.1f}" y="{y + 18}">{shown}</text>')
        x += width + 3
    return boxes, y


if __name__ == "__main__":
    main(*sys.argv[1:])
