"""Text and names that look like markup, for pages that must show them as text."""

PIECES = ("<!--<script>", "</script>", "{{PLOTLY}}", "{{TITLE}}", "\u2028", "&lt;", "<img src=x onerror=alert(1)>")
MODEL = "model <b>&amp; {{DATA}}"
HOSTILE = [f"{piece} {n} põdrad põõsas õunad õues ja kassid koerad" for n in range(60) for piece in PIECES]
