// The reader: documents and pasted text, split by both tokenizers.
const OWN = "own", MOST_CHARACTERS = 200000, MOST_TOKENS = 4000;  // browsers need minutes to lay out 100,000 tokens

class Reader {
  constructor(data, encoders) {
    Object.assign(this, {data, encoders});
    this.reason = this.whyNotOwn();
    $("own").hidden = Boolean(this.reason);
    this.fillDocuments();
    const {samples} = data;
    if (!samples.length && this.reason) $("reader-controls").hidden = true;
    $("sample").addEventListener("change", () => this.show());
    $("previous").addEventListener("click", () => this.step(-1));
    $("next").addEventListener("click", () => this.step(1));
    $("own").addEventListener("input", () => { $("sample").value = OWN; this.show(); });
    this.show();
  }

  /** Why one's own text cannot be split here; "" if it can. Documents of the page are split again to make sure. */
  whyNotOwn() {
    for (const [side, encoder] of Object.entries(this.encoders)) {
      if (encoder.reason) return `the ${side === "base" ? "old" : "new"} tokenizer cannot run in this page exactly: ${encoder.reason}`;
    }
    const differs = this.data.samples.some(sample => ["base", "new"].some(side => this.idsOf(side, sample.content).join() !== sample[side].join()));
    return differs ? "a document of this page is split differently in this browser" : "";
  }

  idsOf(side, text) {
    const encoder = this.encoders[side];
    return encoder.encode(text).map(place => encoder.vocabulary.ids[place]);
  }

  fillDocuments() {
    const groups = new Map();
    this.data.samples.forEach((sample, at) => {
      if (!groups.has(sample.text)) groups.set(sample.text, element("optgroup", {label: sample.text}));
      groups.get(sample.text).append(element("option", {value: at, text: `${sample.text} ${at + 1}: ${sample.sort}, ${number(sample.before)} → ${number(sample.after)} tokens`}));
    });
    if (!this.reason) groups.set(OWN, element("option", {value: OWN, text: "your own text"}));
    $("sample").replaceChildren(...groups.values());
  }

  step(by) {
    const list = $("sample");
    list.selectedIndex = (list.selectedIndex + by + list.options.length) % list.options.length;
    this.show();
  }

  open(place) {
    $("sample").value = place;
    this.show();
    $("reader").scrollIntoView();
  }

  show() {
    const chosen = $("sample").value, notes = [];
    let sides;
    if (chosen === OWN) {
      const text = decoder.decode(encoder.encode($("own").value.slice(0, MOST_CHARACTERS)));
      if ($("own").value.length > MOST_CHARACTERS) notes.push(`Only the first ${number(MOST_CHARACTERS)} characters are split.`);
      sides = {before: this.idsOf("base", text), after: this.idsOf("new", text)};
    } else if (chosen !== "") {
      const sample = this.data.samples[chosen];
      if (sample.isCut) notes.push("The document is cut.");
      sides = {before: sample.base, after: sample.new};
    }
    if (sides && Math.max(sides.before.length, sides.after.length) > MOST_TOKENS) notes.push(`The first ${number(MOST_TOKENS)} tokens are shown; all are counted.`);
    if (this.reason) notes.push(`There is no box for your own text: ${this.reason}.`);
    else notes.push("A line begins every token; point at one for its id. Bytes that are no text are shown as hex.");
    $("reader-note").textContent = notes.join(" ");
    if (!sides) return;
    this.render("before", this.encoders.base.vocabulary, sides.before);
    this.render("after", this.encoders.new.vocabulary, sides.after);
    const saved = sides.after.length / sides.before.length - 1;
    if (sides.before.length) $("after-count").append(element("span", {class: tone(-saved), text: ` (${change(saved)})`}));
  }

  render(side, vocabulary, ids) {
    $(side).replaceChildren(...ids.slice(0, MOST_TOKENS).map(id => token(vocabulary, vocabulary.placeOfId.get(id))));
    $(`${side}-count`).textContent = `${number(ids.length)} tokens`;
  }
}

/** A token as an element: its text, or the bytes that are no text as hex. */
function token(vocabulary, place) {
  const text = vocabulary.text(place), bytes = vocabulary.bytes(place);
  const shown = text === null ? hex(bytes) : text.replace(/\n/g, "⏎\n").replace(/\t/g, "⇥\t").replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, character => "⏎⇥\n\t".includes(character) || "\u200c\u200d".includes(character) ? character : visible(character));
  const look = ["token", text === null ? "hex" : "", vocabulary.isAdded(place) ? "special" : ""].filter(Boolean).join(" ");
  return element("span", {class: look, "data-tip": `id ${vocabulary.ids[place]}\n${text === null ? "" : visible(text) + "\n"}${hex(bytes)}`, text: shown});
}
