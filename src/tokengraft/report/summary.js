// The overview, the curve, the losses, the probe and the checks: everything that needs no vocabulary.
const CONTEXT = 8192;
const NO_LOSS = -0.0005;  // a smaller loss is shown as 0.0 %

const tone = gain => gain === null || gain === undefined ? "" : gain < NO_LOSS ? "bad" : gain > -NO_LOSS ? "good" : "";

/** What the two tokenizers make of a text, in numbers that matter to a user. */
function effects({base, new: after}) {
  const facts = [];
  if (base.bytes_per_token && after.bytes_per_token) {
    const ratio = after.bytes_per_token / base.bytes_per_token;
    facts.push(`${fixed(base.bytes_per_token, 2)} → ${fixed(after.bytes_per_token, 2)} bytes per token`);
    facts.push(`${change(1 / ratio - 1)} tokens and cost for the same text`);
    if (base.tokens_per_word && after.tokens_per_word) {
      const saved = Math.round(1000 * (base.tokens_per_word - after.tokens_per_word)) || 0;  // not -0
      facts.push(saved >= 0 ? `${number(saved)} tokens saved per 1,000 words` : `${number(-saved)} more tokens per 1,000 words`);
    }
    facts.push(`a context of ${number(CONTEXT)} tokens holds as much as ${number(Math.round(CONTEXT * ratio))} before`);
  }
  return facts;
}

const ROLES = {target: "target", keep: "text to keep", text: "text"};

function card(what, big, look, facts) {
  return element("div", {class: "card"}, element("div", {class: "what", text: what}), element("b", {class: look, text: big}),
    element("ul", {}, ...facts.map(fact => element("li", typeof fact === "string" ? {text: fact} : fact))));
}

function showOverview(data) {
  const {summary, texts, checks} = data;
  const kept = summary.kept + summary.moved;
  $("lead").textContent = `${number(summary.added)} tokens added, ${number(summary.removed)} removed, ${number(kept)} kept. ${asked(data.record)}`;
  const cards = texts.map(text => card(text.name === text.role ? text.name : `${text.name}, ${ROLES[text.role]}`, change(text.new.gain) || "not comparable", change(text.new.gain) ? tone(text.new.gain) : "small", effects(text)));
  const rows = `${number(summary.rows[0])} → ${number(summary.rows[1])} embedding rows`;
  const moved = summary.moved ? `${number(summary.moved)} kept tokens have another id` : "every kept token has its old id";
  const parameters = summary.parameters === null ? [] : [`${summary.parameters > 0 ? "+" : summary.parameters < 0 ? "−" : "±"}${number(Math.abs(summary.parameters))} parameters`];
  cards.push(card("vocabulary", vocabularyChange(summary), "small", [rows, moved, ...parameters, ...(checks ? checkFacts(checks) : [])]));
  $("cards").replaceChildren(...cards);
  $("warnings").replaceChildren(...data.warnings.map(text => element("li", {text})));
  showScores(texts);
  showRecord(data.record);
}

const vocabularyChange = ({added, removed}) => [added ? `+${number(added)}` : "", removed ? `−${number(removed)}` : ""].filter(Boolean).join("\u2002") || "±0";

/** How many checks passed; notes are not counted as passed. */
function checkFacts(checks) {
  const named = outcome => checks.filter(check => check.outcome === outcome).map(check => check.name);
  const passed = named("pass"), failed = named("fail"), notes = named("note");
  const facts = [{text: `${passed.length} check${passed.length === 1 ? "" : "s"} passed`, class: failed.length ? "" : "good"}];
  if (failed.length) facts.push({text: `${failed.length} failed: ${failed.join(", ")}`, class: "bad"});
  if (notes.length) facts.push({text: `${notes.length} with a note: ${notes.join(", ")}`});
  return facts;
}

/** The inputs of a record: anything else than objects is left out. */
const entries = inputs => (Array.isArray(inputs) ? inputs : []).filter(input => input !== null && typeof input === "object");

/** What was asked, in a line. */
function asked({inputs, date}) {
  const named = entries(inputs).filter(input => input.bytes > 0 && ["target", "keep", "text"].includes(input.role));
  const parts = named.map(input => `${input.name === input.role ? ROLES[input.role] ?? input.role : input.name} ${megabytes(input.bytes)}` + (input.weight && String(input.weight) !== "1" ? ` (weight ${input.weight})` : ""));
  return [parts.length ? `Text: ${parts.join(", ")}.` : "", date ? `${date}.` : ""].filter(Boolean).join(" ");
}

function showScores(texts) {
  const perWords = score => score.tokens_per_word ? number(Math.round(1000 * score.tokens_per_word)) : "";
  const heads = [["text"], ["measured", "number"], ["bytes per token", "number"], ["change", "number"], ["tokens per 1,000 words", "number"],
    ["same tokens", "number"], ["more tokens", "number"], ["new tokens used", "number"], ...(texts.length > 1 ? [["new tokens most frequent here", "number"]] : [])];
  fillTable("scores", heads, texts.map(text => [text.name, megabytes(text.base.bytes), `${fixed(text.base.bytes_per_token, 3)} → ${fixed(text.new.bytes_per_token, 3)}`,
    {text: change(text.new.gain), class: tone(text.new.gain)}, text.base.tokens_per_word ? `${perWords(text.base)} → ${perWords(text.new)}` : "", percent(text.new.exact_match),
    text.hasDocuments ? `${number(text.longer)} of ${number(text.base.documents)}` : "", percent(text.new.added_used), ...(texts.length > 1 ? [number(text.ownTokens)] : [])]));
  const notes = ["“Same tokens” is the share of documents whose tokens did not change; “more tokens” counts documents that need more tokens than before.", ...(texts.length > 1 ? ["“Most frequent here” is relative to the size of the texts."] : [])];
  const sources = [...new Set(texts.map(text => text.measuredOn))];
  notes.unshift(sources.length === 1 ? `Measured on ${sources[0]}.` : `Measured on: ${texts.map(text => `${text.name}, ${text.measuredOn}`).join("; ")}.`);
  if (sources.includes("held-out documents")) notes.push("Held-out documents are of the same corpora as the text that tokens were learned from; other text may gain less.");
  const small = texts.filter(text => text.base.bytes < 50000);
  if (small.length) notes.push(`Less than 50 kB were measured of ${small.map(text => text.name).join(", ")}: the figures may change with other documents.`);
  $("scores-note").textContent = notes.join(" ");
}

/** A value of a record in words. What is null, such as the path of a text in memory, was not recorded. */
function words(value) {
  if (value === null || value === undefined) return "not recorded";
  if (Array.isArray(value)) return value.map(words).join(", ");
  return typeof value === "object" ? Object.entries(value).map(([name, one]) => `${name}: ${words(one)}`).join("; ") : String(value);
}

/** What was asked, with whichever keys the record has. */
function showRecord(record) {
  const inputs = entries(record.inputs);
  const columns = [["role", "role"], ["name", "name"], ["path", "path", "long"], ["bytes", "text", "number"], ["documents", "documents", "number"], ["held_out", "held out", "number"], ["weight", "weight", "number"], ["file_bytes", "file size", "number"], ["sha256", "SHA-256", "long"]];
  const used = columns.filter(([key]) => inputs.some(input => input[key] !== undefined && input[key] !== null));
  const cell = (key, value) => value === undefined || value === null ? "" : typeof value !== "number" ? words(value) : key.endsWith("bytes") ? megabytes(value) : number(value);
  if (inputs.length) fillTable("inputs", used.map(([, head, look]) => [head, look]), inputs.map(input => used.map(([key]) => cell(key, input[key]))));
  const list = value => Array.isArray(value) || typeof value !== "object" ? words(value) : Object.entries(value).map(([name, one]) => `${name}: ${words(one)}`).join("\n");
  const others = Object.entries(record).filter(([key, value]) => key !== "inputs" && value !== null && value !== undefined);
  $("record").replaceChildren(...others.flatMap(([key, value]) => [element("dt", {text: key}), element("dd", {text: list(value)})]));
  $("asked").open = matchMedia("(min-width: 46rem)").matches;
  $("asked").hidden = !inputs.length && !others.length;
}

function showCurve({curve, size, texts}) {
  if (!curve) return;
  $("curve").hidden = false;
  const names = Object.keys(curve.points[0].rates), roles = new Map(texts.map(text => [text.name, text.role]));
  const gain = (point, name) => point.rates[name] / curve.base[name] - 1;
  const after = curve.points.filter(point => point.tokens > 0);
  const series = names.map(name => ({name: roles.get(name) === "keep" && name !== "keep" ? `${name} (keep)` : name, points: after.map(point => [point.tokens, gain(point, name)])}));
  const mark = curve.knee && curve.knee >= after[0].tokens ? {x: curve.knee, text: `knee: ${number(curve.knee)}`} : undefined;
  const last = after[after.length - 1];
  const summary = `Change of bytes per token by number of new tokens. With ${number(last.tokens)}: ` + names.map(name => `${name} ${change(gain(last, name))}`).join(", ");
  lineChart($("curve-chart"), {series, xName: "new tokens", yName: "bytes per token, change", yText: value => change(value, 0), mark, summary});
  const notes = [size ? `Chosen size: ${size}.` : "", "The tokens are learned once; a smaller size is the beginning of the same list."];
  notes.push(curve.knee === null ? "There is no knee up to this size: 1,000 more tokens still gain 1 % or more."
    : `The knee is at ${number(curve.knee)} tokens: from there on, 1,000 more gain less than 1 %${curve.targets.length > 1 ? ", on average over the targets" : ""}.`);
  if (curve.points[0].tokens === 0 && names.some(name => gain(curve.points[0], name) < NO_LOSS)) {
    notes.push(`Removing tokens alone, before any is learned: ${names.map(name => `${name} ${change(gain(curve.points[0], name))}`).join(", ")}.`);
  }
  $("curve-note").textContent = notes.filter(Boolean).join(" ");
}

/** The documents that lost most. `open` shows a sample in the reader. */
function showLosses(data, open) {
  const lost = data.samples.map((sample, place) => ({...sample, place})).filter(sample => sample.sort === "most tokens lost");
  const measured = data.texts.filter(text => text.hasDocuments);
  $("losses").hidden = !measured.length;
  if (!measured.length) return;
  const totals = measured.map(text => `${text.name}: ${number(text.longer)} of ${number(text.base.documents)} documents need more tokens, ${number(text.shorter)} fewer`);
  $("losses-note").textContent = totals.join("; ") + ".";
  $("losses-table").hidden = !lost.length;
  if (!lost.length) return;
  fillTable("losses-table", [["text"], ["document", "long"], ["before", "number"], ["after", "number"], ["change", "number"], [""]], lost.map(sample => [
    sample.text, sample.content.slice(0, 160) + (sample.content.length > 160 ? "…" : ""), number(sample.before), number(sample.after),
    {text: change(sample.after / sample.before - 1), class: "bad"}, element("button", {type: "button", text: "show", onclick: () => open(sample.place)}),
  ]));
}

function showProbe(probe) {
  if (!probe) return;
  $("probe").hidden = false;
  const {scores, base} = probe, texts = [...new Set(scores.map(score => score.text))];
  const runs = [...new Map(scores.map(score => [`${score.model}, ${score.steps ? `after ${number(score.steps)} steps` : "not trained"}`, score])).entries()];
  const find = (model, text, steps) => scores.find(score => score.model === model && score.text === text && score.steps === steps);
  const values = text => runs.map(([, {model, steps}]) => find(model, text, steps)?.bits_per_byte ?? null);
  const best = text => runs[values(text).indexOf(Math.min(...values(text).filter(value => value !== null)))]?.[0] ?? "none";
  const summary = "Bits per byte. Lowest: " + texts.map(text => `${text} by ${best(text)}`).join("; ");
  barChart($("probe-chart"), {groups: texts.map(text => ({name: text, values: values(text)})), names: runs.map(run => run[0]), yName: "bits per byte", yText: value => fixed(value, 2), summary});
  fillTable("probe-table", [["model"], ["text"], ["steps", "number"], ["bits per byte", "number"], ["against the base", "number"], ["new tokens", "number"], ["kept tokens", "number"], ["bytes per token", "number"]],
    scores.map(score => {
      const against = find(base, score.text, score.steps)?.bits_per_byte, worse = score.model === base || !against || score.bits_per_byte === null ? null : score.bits_per_byte / against - 1;
      return [score.model, score.text, number(score.steps), fixed(score.bits_per_byte, 3), {text: change(worse), class: worse === null ? "" : tone(-worse)},
        fixed(score.new_bits_per_byte, 3), fixed(score.kept_bits_per_byte, 3), score.tokens ? fixed(score.bytes / score.tokens, 2) : ""];
    }));
  $("probe-note").textContent = `Bits that a model needs for a byte of text: fewer is better, whatever the tokenizer. All models read the same bytes. “New tokens” are those that ${base} lacks.` +
    (scores.some(score => score.bits_per_byte === null) ? " Where bits per byte are missing, the loss of the model was not a number." : "");
}

function showChecks(checks) {
  if (!checks) return;
  $("checks").hidden = false;
  const looks = {pass: "good", fail: "bad", note: ""};
  fillTable("checks-table", [["outcome"], ["check"], ["detail", "long"]], checks.map(check => [
    {text: {pass: "passed", fail: "failed", note: "note"}[check.outcome], class: looks[check.outcome]}, check.name, check.detail + (check.evidence.length ? `; such as ${check.evidence.slice(0, 3).join(", ")}` : ""),
  ]));
}
