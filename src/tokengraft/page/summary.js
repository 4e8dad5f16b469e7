// The overview, the curves, the losses, the models and the checks: everything that needs no vocabulary.
const CONTEXT = 8192;
const NO_LOSS = -0.0005;  // a smaller loss is shown as 0.0 %

const tone = gain => gain === null || gain === undefined ? "" : gain < NO_LOSS ? "bad" : gain > -NO_LOSS ? "good" : "";

/** The relative change of the number of tokens; null if there were none. */
const tokensChange = ({base, new: after}) => base.tokens ? after.tokens / base.tokens - 1 : null;

/** The result in a line, and a note: what a smaller vocabulary saves, else what the first text of the table gains. */
function headline({summary, texts}) {
  const [before, after] = summary.rows, rows = `${number(before)} → ${number(after)} embedding rows`;
  if (summary.removed > summary.added && after < before) {
    const saved = [`${number(before - after)} embedding rows`, ...(summary.parameters === null ? [] : [`${number(-summary.parameters)} parameters`, megabytes(-summary.bytes)])];
    return [`${new Intl.ListFormat("en").format(saved)} saved`, `${rows}.` + (summary.parameters === null ? " Every row saves as many parameters as the model is wide, twice that if input and output are not tied." : "")];
  }
  if (!texts.length) return ["", ""];
  const [text] = texts, rates = [text.base.bytes_per_token, text.new.bytes_per_token], more = tokensChange(text), shown = percent(Math.abs(more));
  const words = more === null || shown === percent(0) ? "as many tokens as before" : `${shown} ${more < 0 ? "fewer" : "more"} tokens`;
  const context = rates[0] && rates[1] ? `A context of ${number(CONTEXT)} tokens holds as much of this text as ${number(Math.round(CONTEXT * rates[1] / rates[0]))} tokens did before.` : "";
  return [`${text.name}: ${words}`, context];
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
  [$("headline").textContent, $("headline-note").textContent] = headline(data);
  const rows = `${number(summary.rows[0])} → ${number(summary.rows[1])} embedding rows`;
  const moved = summary.moved ? `${number(summary.moved)} kept tokens have another id` : "every kept token has its old id";
  const parameters = summary.parameters === null ? [] : [`${summary.parameters > 0 ? "+" : summary.parameters < 0 ? "−" : "±"}${number(Math.abs(summary.parameters))} parameters`];
  $("cards").replaceChildren(card("vocabulary", vocabularyChange(summary), "small", [rows, moved, ...parameters, ...(checks ? checkFacts(checks) : [])]), ...nextCard(data.next));
  $("warnings").replaceChildren(...data.warnings.map(text => element("li", {text})));
  showScores(texts);
  showRecord(data.record);
}

const vocabularyChange = ({added, removed}) => [added ? `+${number(added)}` : "", removed ? `−${number(removed)}` : ""].filter(Boolean).join("\u2002") || "±0";

/** What to do with the result, with the command. */
function nextCard(next) {
  if (!next) return [];
  const [what, why, command] = next, where = `${why} \`adapted\` is the folder of this page.`.replace(/`([^`]*)`/g, "“$1”");
  return [card("next", what, "small", [where, {text: command, class: "mono command"}])];
}

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
  const own = texts.filter(text => text.ownTokens !== null).length > 1;
  const columns = [
    [["text", "name"], text => text.name],
    [["bytes/token", "number"], text => `${fixed(text.base.bytes_per_token, 3)} → ${fixed(text.new.bytes_per_token, 3)}`, "more is better"],
    [["tokens", "number"], text => ({text: change(tokensChange(text)), class: tone(-tokensChange(text))}), "change for the same text"],
    [["same", "number"], text => percent(text.new.exact_match), "documents with unchanged tokens"],
    [["new used", "number"], text => percent(text.new.added_used), "new tokens that occur in the text"],
    [["more", "number"], text => text.hasDocuments ? `${number(text.longer)} of ${number(text.base.documents)}` : "", "documents that need more tokens"],
    [["tokens per 1,000 words", "number"], text => text.base.tokens_per_word ? `${perWords(text.base)} → ${perWords(text.new)}` : ""],
    [["measured", "number"], text => megabytes(text.base.bytes)],
    [["new tokens most frequent here", "number"], text => !own || text.ownTokens === null ? "" : number(text.ownTokens), "relative to the bytes of the texts"],
  ].filter(([, cell]) => texts.some(text => cell(text)));
  fillTable("scores", columns.map(([head]) => head), texts.map(text => columns.map(([, cell]) => cell(text))));
  $("scores-legend").textContent = columns.filter(column => column[2]).map(([[head], , meaning]) => `${head}: ${meaning}`).join("; ");
  const sources = [...new Set(texts.map(text => text.measuredOn))], named = source => texts.filter(text => text.measuredOn === source).map(text => text.name).join(", ");
  const notes = [`Measured on ${sources.map(source => sources.length === 1 ? source : `${source}: ${named(source)}`).join("; ")}.`];
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
  const columns = [["role", "role"], ["name", "name"], ["path", "path", "long"], ["bytes", "text", "number"], ["documents", "documents", "number"], ["held_out_bytes", "held out", "number"], ["weight", "weight", "number"], ["file_bytes", "file size", "number"], ["sha256", "SHA-256", "long"]];
  const used = columns.filter(([key]) => inputs.some(input => input[key] !== undefined && input[key] !== null));
  const cell = (key, value) => value === undefined || value === null ? "" : typeof value !== "number" ? words(value) : key.endsWith("bytes") ? megabytes(value) : number(value);
  if (inputs.length) fillTable("inputs", used.map(([, head, look]) => [head, look]), inputs.map(input => used.map(([key]) => cell(key, input[key]))));
  const list = value => Array.isArray(value) || typeof value !== "object" ? words(value) : Object.entries(value).map(([name, one]) => `${name}: ${words(one)}`).join("\n");
  const others = Object.entries(record).filter(([key, value]) => key !== "inputs" && value !== null && value !== undefined);
  $("record").replaceChildren(...others.flatMap(([key, value]) => [element("dt", {text: key}), element("dd", {text: list(value)})]));
  $("asked").hidden = !inputs.length && !others.length;
}

function showCurve({curve, size, trainingText}) {
  if (!curve) return;
  $("curve").hidden = false;
  const names = Object.keys(curve.points[0].rates);
  const gain = (point, name) => point.rates[name] / curve.base[name] - 1;
  const after = curve.points.filter(point => point.tokens > 0);
  const series = names.map(name => ({name, points: after.map(point => [point.tokens, gain(point, name)])}));
  const mark = curve.knee && curve.knee >= after[0].tokens ? {x: curve.knee, text: `knee: ${number(curve.knee)}`} : undefined;
  const last = after[after.length - 1];
  const summary = `Change of bytes per token by number of new tokens. With ${number(last.tokens)}: ` + names.map(name => `${name} ${change(gain(last, name))}`).join(", ");
  lineChart($("curve-chart"), {series, xName: "new tokens", yName: "bytes per token, change", yText: value => change(value, 0), mark, summary});
  const isKnown = after[0].rare !== null, where = trainingText ? `${megabytes(trainingText)} of training text` : "the counted text";
  const heads = ["new tokens", ...names.map(name => `tokens saved, ${name}`), ...(isKnown ? ["rare rows"] : [])];
  fillTable("curve-table", heads.map(head => [head, "number"]), after.map(point => [
    number(point.tokens), ...names.map(name => percent(1 - curve.base[name] / point.rates[name])), ...(isKnown ? [percent(point.rare)] : []),
  ]));
  const notes = [size ? `Chosen size: ${size}.` : "", "The tokens are learned once; a smaller size is the beginning of the same list."];
  if (isKnown) notes.push(`Rare rows are new tokens that ${trainingText ? "are expected to " : ""}occur fewer than 100 times in ${where}: they are hardly trained.`);
  notes.push(curve.knee === null ? "Up to this size, 1,000 more tokens still gain 1 % or more."
    : `The knee is at ${number(curve.knee)} tokens: from there on, 1,000 more gain less than 1 %${curve.targets.length > 1 ? ", on average over the targets" : ""}.`);
  if (curve.points[0].tokens === 0 && names.some(name => gain(curve.points[0], name) < NO_LOSS)) {
    notes.push(`Removing tokens alone, before any is learned: ${names.map(name => `${name} ${change(gain(curve.points[0], name))}`).join(", ")}.`);
  }
  $("curve-note").textContent = notes.filter(Boolean).join(" ");
}

/** What it costs to remove more or fewer tokens, and what it saves. */
function showPruneCurve({pruneCurve, size}) {
  if (!pruneCurve) return;
  $("prune-curve").hidden = false;
  const {points, chosen} = pruneCurve, names = Object.keys(points[0].cost), isKnown = points[0].bytes !== null;
  const series = names.map(name => ({name, points: points.map(point => [point.removed, point.cost[name]])}));
  const here = points.find(point => point.removed === chosen), mark = here && {x: chosen, text: `chosen: ${number(chosen)}`};
  const summary = "Change in tokens by number of removed tokens" + (here ? `. With ${number(chosen)}: ` + names.map(name => `${name} ${change(here.cost[name])}`).join(", ") : "");
  lineChart($("prune-curve-chart"), {series, xName: "tokens removed", yName: "tokens, change", yText: value => change(value), mark, summary, isLinear: true});
  const heads = ["tokens removed", "rows", ...names, ...(isKnown ? ["parameters saved", "saved"] : [])];
  fillTable("prune-curve-table", [...heads.map(head => [head, "number"]), [""]], points.map(point => [
    number(point.removed), number(point.rows), ...names.map(name => change(point.cost[name], 2)),
    ...(isKnown ? [number(point.parameters), megabytes(point.bytes)] : []), point === here ? "chosen" : "",
  ]));
  $("prune-curve-note").textContent = (size ? `Chosen size: ${size}. ` : "") + "The change in tokens is that of held-out text.";
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

/** The removed tokens by kind, and by script. */
function showRemoved({kinds, scripts}) {
  $("removed").hidden = !kinds.length;
  const rows = (what, groups) => groups.map(group => [what, group.name, number(group.tokens), group.examples.map(text => visible(text)).join("  ")]);
  fillTable("removed-table", [["by"], ["name"], ["tokens", "number"], ["most frequent", "long"]], [...rows("kind", kinds), ...rows("script", scripts.slice(0, 8))]);
  const others = scripts.slice(8);
  $("removed-note").textContent = "Every removed token has one kind. Tokens without letters have no script, and a token with letters of two scripts is counted for both." +
    (others.length ? ` Other scripts: ${others.map(group => `${group.name} ${number(group.tokens)}`).join(", ")}.` : "");
}

/** The tokens of the built-in sample texts. */
function showSampleTexts(samples) {
  fillTable("sample-texts-table", [["sample"], ["before", "number"], ["after", "number"], ["change", "number"]], samples.map(({name, before, after}) => {
    const more = before ? after / before - 1 : 0;
    return [name, number(before), number(after), {text: change(more), class: Math.round(1000 * more) > 10 ? "bad" : more < 0 ? "good" : ""}];
  }));
}

function showBits(bits) {
  if (!bits) return;
  $("bits").hidden = false;
  const {scores, base} = bits, texts = [...new Set(scores.map(score => score.text))], models = [...new Set(scores.map(score => score.tokenizer))];
  const values = text => models.map(model => scores.find(score => score.tokenizer === model && score.text === text)?.bits_per_byte ?? null);
  const best = text => models[values(text).indexOf(Math.min(...values(text).filter(value => value !== null)))] ?? "none";
  const summary = "Bits per byte. Lowest: " + texts.map(text => `${text} by ${best(text)}`).join("; ");
  barChart($("bits-chart"), {groups: texts.map(text => ({name: text, values: values(text)})), names: models, yName: "bits per byte", yText: value => fixed(value, 2), summary});
  fillTable("bits-table", [["model"], ["text"], ["bits per byte", "number"], ["against the base", "number"], ["new tokens", "number"], ["kept tokens", "number"], ["bytes per token", "number"]],
    scores.map(score => [score.tokenizer, score.text, fixed(score.bits_per_byte, 3), {text: change(score.bits_change), class: score.bits_change === null ? "" : tone(-score.bits_change)},
      fixed(score.new_bits_per_byte, 3), fixed(score.kept_bits_per_byte, 3), fixed(score.bytes_per_token, 2)]));
  $("bits-note").textContent = `Bits that a model needs for a byte of text: fewer is better, whatever the tokenizer. All models read the same bytes. “New tokens” are those that ${base} lacks.`;
}

function showChecks(checks) {
  if (!checks) return;
  $("checks").hidden = false;
  const looks = {pass: "good", fail: "bad", note: ""};
  fillTable("checks-table", [["outcome"], ["check"], ["detail", "long"]], checks.map(check => [
    {text: {pass: "passed", fail: "failed", note: "note"}[check.outcome], class: looks[check.outcome]}, check.name, check.detail + (check.evidence.length ? `; such as ${check.evidence.slice(0, 3).join(", ")}` : ""),
  ]));
}
