// The list of all tokens: only the rows in view are elements, so it is fast with hundreds of thousands of tokens.
const ROW = 35;  // pixels, as .row in the style sheet
const TALLEST = 15e6;  // browsers draw no element that is much taller: beyond it, scrolling goes faster than the rows

/** All tokens of both tokenizers. A row is the place of a token of the new one, or -1 - the place of a removed one. */
class TokenTable {
  constructor(data, columns, encoders) {
    Object.assign(this, {data, encoders, base: encoders.base.vocabulary, after: encoders.new.vocabulary});
    const kept = new Set(this.after.sources);
    const removed = this.base.ids.map((_, place) => place).filter(place => !kept.has(place));
    this.rows = [...this.after.ids.map((_, place) => place), ...removed.map(place => -1 - place)];
    const frequencies = side => data.texts.map((_, at) => numbers(columns[`${side}.frequency.${at}`]));
    this.frequencies = {base: frequencies("base"), new: frequencies("new")};
    this.placeOfRemoved = new Map(removed.map((place, at) => [place, at]));
    const own = this.rows.filter(row => row >= 0 && this.after.sources[row] < 0);
    this.examples = new Map([...readExamples(columns["new.examples"], own), ...readExamples(columns["base.examples"], removed.map(place => -1 - place))]);
    this.texts = new Map();
  }

  vocabulary(row) { return row >= 0 ? this.after : this.base; }
  place(row) { return row >= 0 ? row : -1 - row; }
  status(row) { return row < 0 ? "removed" : this.after.sources[row] < 0 ? "new" : "kept"; }
  id(row) { return this.vocabulary(row).ids[this.place(row)]; }
  script(row) { return this.vocabulary(row).scripts[this.place(row)]; }
  bytes(row) { return this.vocabulary(row).bytes(this.place(row)); }

  /** The id in the base; undefined for new tokens. */
  oldId(row) { return row < 0 ? this.id(row) : this.base.ids[this.after.sources[row]]; }

  /** The text of a token, null if its bytes are no text. */
  text(row) {
    if (!this.texts.has(row)) this.texts.set(row, this.vocabulary(row).text(this.place(row)));
    return this.texts.get(row);
  }

  visible(row) { return visible(this.text(row), this.text(row) === null ? this.bytes(row) : ""); }

  /** How often a token occurs in a text; in all texts if none is given. */
  frequency(row, at = -1) {
    const counts = this.frequencies[row >= 0 ? "new" : "base"], place = row >= 0 ? row : this.placeOfRemoved.get(-1 - row);
    return at >= 0 ? counts[at][place] : counts.reduce((sum, one) => sum + one[place], 0);
  }

  /** The text in which a token is most frequent, relative to the length of the text; -1 if it occurs in none. New tokens are learned from targets, so for them only targets are compared. */
  home(row) {
    let best = -1, most = 0;
    const isNew = this.status(row) === "new";
    this.data.texts.forEach((text, at) => {
      const rate = isNew && text.ownTokens === null ? 0 : this.frequency(row, at) / text.countedBytes;
      if (rate > most) { most = rate; best = at; }
    });
    return best;
  }

  /** The tokens of the other tokenizer for the same bytes: what a new token replaces, or what a removed one became. */
  pieces(row) {
    if (this.status(row) === "kept" ) return [];
    const other = row >= 0 ? this.encoders.base : this.encoders.new, own = this.vocabulary(row), place = this.place(row);
    const sameText = !own.byteLevel && !other.vocabulary.byteLevel;
    return sameText ? other.pretoken(own.keys[place]) : other.pieces(own.bytes(place));
  }

  pieceTexts(row) {
    const other = row >= 0 ? this.base : this.after;
    return this.pieces(row).map(place => visible(other.text(place), other.bytes(place)));
  }

  example(row) {
    const found = this.examples.get(row);
    return found && [this.data.snippets[row >= 0 ? "new" : "base"][found[0]], found[1], found[2]];
  }
}

function readExamples(column, rows) {
  const values = numbers(column), found = [];
  let at = 0;
  for (const row of rows) {
    if (!values[at]) { at++; continue; }
    found.push([row, [values[at] - 1, values[at + 1], values[at + 2]]]);
    at += 3;
  }
  return found;
}

/** The example of a token: the text around it, with the token marked. */
function marked([snippet, start, end], before = Infinity) {
  const flat = text => text.replace(/\s+/g, " "), left = [...flat(snippet.slice(0, start))];
  return [(left.length > before ? "…" : "") + left.slice(-before).join(""), element("mark", {text: flat(snippet.slice(start, end))}), flat(snippet.slice(end))];
}

/** The list with its filters. */
class Explorer {
  constructor(table) {
    this.table = table;
    this.sorted = {by: "frequency", descending: true};
    this.fillFilters();
    for (const id of ["search", "least", "most"]) $(id).addEventListener("input", () => this.filter());
    for (const id of ["status", "script", "text"]) $(id).addEventListener("change", () => this.filter());
    $("csv").addEventListener("click", () => this.download());
    $("list").addEventListener("scroll", () => this.render());
    $("list").addEventListener("keydown", event => { if (event.key === "Enter" && event.target.dataset.row) this.open(Number(event.target.dataset.row)); });
    this.showExamplesNote();
    this.filter();
  }

  fillFilters() {
    const {table} = this, options = (id, values) => $(id).replaceChildren(...values.map(([value, text]) => element("option", {value, text})));
    const counts = {new: 0, removed: 0, kept: 0};
    for (const row of table.rows) counts[table.status(row)]++;
    options("status", [...["new", "removed", "kept"].map(status => [status, `${status} (${number(counts[status])})`]), ["all", `all (${number(table.rows.length)})`]]);
    $("status").value = counts.new ? "new" : counts.removed ? "removed" : "all";
    const scripts = [...new Set(table.rows.map(row => table.script(row)))].sort();
    options("script", [["", "any script"], ...scripts.map(name => [name, name])]);
    options("text", [["-1", "all texts"], ...table.data.texts.map((text, at) => [at, `most frequent in ${text.name}`])]);
    $("text").hidden = table.data.texts.length < 2;
  }

  showExamplesNote() {
    const {table} = this, without = table.rows.filter(row => table.status(row) !== "kept" && !table.examples.has(row));
    const occurring = without.filter(row => table.frequency(row) > 0).length;
    $("examples-note").textContent = occurring ? `${number(occurring)} new or removed tokens that occur have no example: none in the documents that were measured, or it was left out to keep the page small.` : "";
  }

  filter() {
    const {table} = this, wanted = $("search").value, status = $("status").value, script = $("script").value, at = Number($("text").value);
    const least = Number($("least").value || 0), most = $("most").value === "" ? Infinity : Number($("most").value);
    const folded = wanted.toLowerCase(), id = /^\d+$/.test(wanted) ? Number(wanted) : -1;
    const matches = row => table.id(row) === id || (table.text(row) ?? hex(table.bytes(row))).toLowerCase().includes(folded) || (/^\\x/i.test(wanted) && hex(table.bytes(row)).toLowerCase().includes(folded));
    this.found = table.rows.filter(row => {
      if (status !== "all" && table.status(row) !== status || script && table.script(row) !== script) return false;
      const frequency = table.frequency(row, at);
      return frequency >= least && frequency <= most && (at < 0 || table.home(row) === at) && (!wanted || matches(row));
    });
    this.sort();
  }

  sort() {
    const {table} = this, {by, descending} = this.sorted, at = Number($("text").value);
    const keys = {token: row => table.text(row) ?? "\uffff", id: row => table.id(row), status: row => table.status(row), script: row => table.script(row), frequency: row => table.frequency(row, at), pieces: row => table.pieces(row).length};
    const keyed = this.found.map(row => [keys[by](row), row]), sign = descending ? -1 : 1;
    keyed.sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : table.id(a[1]) - table.id(b[1])));
    this.found = keyed.map(pair => pair[1]);
    $("shown").textContent = `${number(this.found.length)} of ${number(table.rows.length)} tokens.`;
    $("list").scrollTop = 0;
    this.render();
  }

  head() {
    const names = [["token", "token"], ["id", "id", "number"], ["status", "status"], ["script", "script"], ["frequency", "frequency", "number"], ["pieces", "pieces"]];
    const arrow = by => this.sorted.by === by ? this.sorted.descending ? " ↓" : " ↑" : "";
    const cells = names.map(([by, text, look]) => element("div", {class: look, role: "columnheader", "aria-sort": this.sorted.by === by ? this.sorted.descending ? "descending" : "ascending" : undefined},
      element("button", {type: "button", text: text + arrow(by), "data-sort": by, onclick: () => { this.sorted = {by, descending: this.sorted.by === by ? !this.sorted.descending : by === "frequency" || by === "pieces"}; this.sort(); }})));
    return element("div", {class: "row head", role: "row"}, ...cells, element("div", {role: "columnheader", text: "example"}));
  }

  /** Draws the rows in view. */
  render() {
    const list = $("list"), full = this.found.length * ROW, height = Math.min(full, TALLEST);
    const above = full > height ? list.scrollTop * (full - list.clientHeight) / (height - list.clientHeight) : list.scrollTop;
    const first = Math.max(0, Math.floor(above / ROW) - 8);
    const shown = this.found.slice(first, first + Math.ceil(list.clientHeight / ROW) + 16);
    const rows = shown.map((row, at) => this.row(row, (first + at) * ROW - above + list.scrollTop));
    const space = element("div", {role: "rowgroup", style: `position: relative; height: ${height}px`}, ...rows);
    list.replaceChildren(this.head(), space);
  }

  row(row, top) {
    const {table} = this, example = table.example(row), pieces = table.pieceTexts(row);
    const cell = (text, look) => element("div", {class: look, role: "cell", text});
    const isKept = table.status(row) === "kept";
    const made = element("div", {class: "row body" + (row === this.opened ? " open" : ""), role: "row", tabindex: 0, style: `top: ${top}px`, "data-row": row, onclick: () => this.open(row)},
      cell(table.visible(row), "mono"), cell(number(table.id(row)), "number"), cell(table.status(row)), cell(table.script(row)), cell(number(table.frequency(row, Number($("text").value))), "number"),
      element("div", {role: "cell", class: "mono"}, ...pieces.map(text => element("span", {class: "piece", text}))), element("div", {role: "cell", dir: "auto"}, ...(example ? marked(example, 12) : [isKept ? "" : "—"])));
    return made;
  }

  /** Shows everything about a token below the list. */
  open(row) {
    this.opened = row;
    this.render();
    $("list").querySelector(`[data-row="${row}"]`)?.focus({preventScroll: true});
    const {table} = this, vocabulary = table.vocabulary(row), other = row >= 0 ? table.base : table.after, example = table.example(row), status = table.status(row);
    const pieces = table.pieces(row).map(place => `${visible(other.text(place), other.bytes(place))} (${other.ids[place]})`);
    const facts = [["id", number(table.id(row))], ["status", status + (vocabulary.isAdded(table.place(row)) ? ", added token" : "") + (vocabulary.flags[table.place(row)] & FLAG.unreachable ? ", never made by merges" : "")]];
    if (status === "kept" && table.oldId(row) !== table.id(row)) facts.push(["old id", number(table.oldId(row))]);
    facts.push(["bytes", hex(table.bytes(row))], ["script", table.script(row)], ["frequency", table.data.texts.map((text, at) => `${text.name}: ${number(table.frequency(row, at))}`).join("\n")]);
    if (pieces.length) facts.push([status === "new" ? "replaces" : "is now", pieces.join("  ")]);
    const list = element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {text: name}), element("dd", {text: value})]));
    if (example) list.append(element("dt", {text: "example"}), element("dd", {dir: "auto"}, ...marked(example)));
    $("detail")?.remove();
    $("list").after(element("div", {class: "detail", id: "detail"}, element("h3", {class: "mono", text: table.visible(row)}), list));
  }

  csv() {
    const {table} = this, quoted = value => `"${String(value).replaceAll('"', '""')}"`;
    const heads = ["token", "bytes", "id", "old_id", "status", "script", ...table.data.texts.map(text => `frequency_${text.name}`), "pieces", "piece_ids"];
    const lines = this.found.map(row => {
      const other = row >= 0 ? table.base : table.after, pieces = table.pieces(row);
      return [table.text(row) ?? "", hex(table.bytes(row)).replaceAll("\\x", ""), table.id(row), table.oldId(row) ?? "", table.status(row), table.script(row), ...table.data.texts.map((_, at) => table.frequency(row, at)),
        pieces.map(place => visible(other.text(place), other.bytes(place))).join("|"), pieces.map(place => other.ids[place]).join(" ")].map(quoted).join(",");
    });
    return [heads.map(quoted).join(","), ...lines].join("\r\n") + "\r\n";
  }

  download() {
    const link = element("a", {href: URL.createObjectURL(new Blob([this.csv()], {type: "text/csv"})), download: "tokens.csv"});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
}
