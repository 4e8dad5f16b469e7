// Reads the data and shows all sections.
function showNavigation() {
  const links = [...document.querySelectorAll("section[data-title]")].filter(section => !section.hidden);
  $("navigation").replaceChildren(...links.map(section => element("a", {href: `#${section.id}`, text: section.dataset.title})));
}

function showSupport(data, table) {
  const added = table.rows.filter(row => table.status(row) === "new");
  if (!added.length || !data.texts.length) return;
  $("support").hidden = false;
  const targets = data.texts.map((text, at) => [text, at]).filter(([text]) => text.role === "target");
  const used = targets.length ? targets : data.texts.map((text, at) => [text, at]);
  const counted = used.reduce((sum, [text]) => sum + text.countedBytes, 0), trained = data.trainingText ?? counted;
  const values = added.map(row => Math.floor(used.reduce((sum, [, at]) => sum + table.frequency(row, at), 0) * trained / (counted || 1)));
  const below = limit => percent(values.filter(value => value < limit).length / values.length);
  const where = used.map(([text]) => `${text.name} (${megabytes(text.countedBytes)})`).join(", ");
  const rare = `Fewer than 10 times: ${below(10)} of the new tokens; 100: ${below(100)}; 1,000: ${below(1000)}`;
  histogram($("support-chart"), {values, xName: "occurrences", yName: "new tokens", summary: rare});
  $("support-note").textContent = `${rare}. Counted in ${where}, as the new tokenizer encodes it${data.trainingText ? `, and expected in ${megabytes(trained)} of training text` : ""}. The row of a token that is rarely seen in training stays close to where it started.`;
}

async function main() {
  const columns = await readColumns($("data").textContent);
  const data = JSON.parse(new TextDecoder().decode(columns.data));
  enableTips();
  showOverview(data);
  showCurve(data);
  showPruneCurve(data);
  showBits(data.bits);
  showChecks(data.checks);
  showRemoved(data.removed);
  showSampleTexts(data.sampleTexts);
  await new Promise(resolve => setTimeout(resolve));  // the first screen is drawn before the vocabularies are read
  const {base: baseSettings, new: newSettings} = data.settings;
  for (const name of ["pipeline", "added"]) newSettings[name] ??= baseSettings[name];
  const base = baseVocabulary(baseSettings, columns), after = newVocabulary(newSettings, columns, base);
  const encoders = {base: new Encoder(base), new: new Encoder(after)};
  const table = new TokenTable(data, columns, encoders);
  showSupport(data, table);
  const reader = new Reader(data, encoders);
  showLosses(data, place => reader.open(place));
  const explorer = new Explorer(table);
  showNavigation();
  window.tokengraft = {data, encoders, table, reader, explorer};  // for scripts, and for the tests
  document.documentElement.dataset.ready = "true";
}

main().catch(error => {
  $("lead").textContent = `This page cannot be shown: ${error.message}. It needs a browser of 2023 or later.`;
  throw error;
});
