// Makes elements and texts of values. All text is set as text, never as HTML.
const $ = id => document.getElementById(id);
const number = value => value.toLocaleString("en");
const fixed = (value, digits) => value === null || value === undefined ? "" : value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
const percent = (value, digits = 1) => value === null || value === undefined ? "" : fixed(100 * value, digits) + " %";

/** A change with its sign. What rounds to nothing has none. */
function change(value, digits = 1) {
  if (value === null || value === undefined) return "";
  const text = percent(Math.abs(value), digits);
  return Number((100 * value).toFixed(digits)) === 0 ? text : (value > 0 ? "+" : "−") + text;
}

function megabytes(bytes) {
  return bytes < 1e5 ? `${number(bytes)} bytes` : bytes < 1e8 ? `${fixed(bytes / 1e6, 1)} MB` : `${fixed(bytes / 1e9, 2)} GB`;
}

/** An element with attributes and children: strings, or other elements. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Fills a table. A head is [text, class]; a cell is a text, an element, or {text, class}. */
function fillTable(id, heads, rows) {
  const head = element("tr", {}, ...heads.map(([text, look]) => element("th", {text, class: look, scope: "col"})));
  const body = rows.map(cells => element("tr", {}, ...cells.map((cell, at) => {
    const own = cell !== null && typeof cell === "object" && !(cell instanceof Node) ? cell : {text: cell};
    const made = element("td", {class: [heads[at][1], own.class].filter(Boolean).join(" ") || undefined});
    made.append(own.text ?? "");
    return made;
  })));
  $(id).replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}

const SPECIAL = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/gu;
const NAMES = new Map([["\n", "⏎"], ["\t", "⇥"], ["\r", "␍"]]);

/** A token as visible text: spaces at its ends and control characters have signs; bytes that are no text are hex. */
function visible(text, bytes) {
  if (text === null) return hex(bytes);
  return text
    .replace(/^ +| +$/g, spaces => "␣".repeat(spaces.length))
    .replace(SPECIAL, character => NAMES.get(character) ?? `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
}

const hex = bytes => Array.from(bytes, byte => "\\x" + byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")).join("");

/** Shows the `data-tip` of what is pointed at or focused. */
function enableTips() {
  const tip = element("div", {class: "tip", role: "tooltip", hidden: true});
  document.body.append(tip);
  const show = event => {
    const target = event.target.closest?.("[data-tip]");
    tip.hidden = !target;
    if (!target) return;
    tip.textContent = target.dataset.tip;
    const box = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - own.width - 4))}px`;
    tip.style.top = `${box.top > own.height + 8 ? box.top - own.height - 4 : box.bottom + 4}px`;
  };
  for (const name of ["pointerover", "focusin"]) document.addEventListener(name, show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);
}
