// Three kinds of charts as SVG: lines over an axis with the numbers that were measured, bars in groups, and a histogram by powers of ten.
// Colours are variables of the style sheet, so a chart follows light and dark without being drawn again.
const DASHES = ["", "7 4", "2 4", "9 4 2 4", "12 5", "4 2"];
const HEIGHT = 320, LEFT = 56, RIGHT = 16, TOP = 34, BOTTOM = 44;

function shape(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const label = (text, x, y, anchor = "middle") => shape("text", {x, y, "text-anchor": anchor}, text);
const colour = place => `var(--series-${place % 6})`;

/** Round steps of an axis from `low` to `high`: about five numbers. */
function linearTicks(low, high) {
  const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough), ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) ticks.push(at * step || 0);  // not -0
  return ticks;
}

/** Draws into an element now, and again when its width changes. */
function drawn(container, summary, draw) {
  const render = () => {
    const width = Math.max(container.clientWidth, 240);
    container.querySelector(":scope > svg")?.remove();
    container.append(shape("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": summary}, ...draw(width)));
  };
  let before = 0;
  new ResizeObserver(() => { if (container.clientWidth !== before) { before = container.clientWidth; render(); } }).observe(container);
}

function legend(container, names, dashed) {
  const entries = names.map((name, at) => element("li", {},
    shape("svg", {viewBox: "0 0 32 12", "aria-hidden": "true"}, shape("line", {
      x1: 0, x2: 32, y1: 6, y2: 6, stroke: colour(at), "stroke-width": dashed ? 2 : 10, "stroke-dasharray": dashed ? DASHES[at % 6] : undefined,
    })), name));
  container.append(element("ul", {class: "legend"}, ...entries));
}

/** The axes of a chart: grid lines with labels on the left, labels below, and the names of both axes. */
function axes(width, {xTicks, yTicks, x, y, xText, yText, xName, yName}) {
  const parts = yTicks.flatMap(tick => [
    shape("line", {class: tick === 0 ? "zero" : "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick)}),
    label(yText(tick), LEFT - 6, y(tick) + 4, "end"),
  ]);
  let free = -Infinity;
  for (const tick of xTicks) {  // labels that would overlap the one before are left out
    const text = xText(tick), half = text.length * 3.6 + 3, place = Math.min(x(tick), width - half);
    if (place - half < free) continue;
    free = place + half;
    parts.push(label(text, place, HEIGHT - BOTTOM + 18));
  }
  parts.push(label(xName, (LEFT + width - RIGHT) / 2, HEIGHT - 6));
  return [...parts, label(yName, 0, 14, "start")];
}

/** Lines: `series` of {name, points: [[x, y]]}, over an axis that is logarithmic unless `isLinear`. `mark` is {x, text}, a vertical line. */
function lineChart(container, {series, xName, yName, yText, mark, summary, isLinear}) {
  legend(container, series.map(one => one.name), true);
  const xs = series.flatMap(one => one.points.map(point => point[0])), ys = series.flatMap(one => one.points.map(point => point[1]));
  const low = Math.min(0, ...ys), high = Math.max(0, ...ys), first = Math.min(...xs), last = Math.max(...xs);
  const room = (high - low) * 0.05 || 0.01, scale = isLinear ? value => value : Math.log;
  drawn(container, summary, width => {
    const x = value => last === first ? (LEFT + width - RIGHT) / 2 : LEFT + 12 + (scale(value) - scale(first)) / (scale(last) - scale(first)) * (width - LEFT - RIGHT - 24);
    const y = value => HEIGHT - BOTTOM - (value - low + room) / (high - low + 2 * room) * (HEIGHT - TOP - BOTTOM);
    const parts = axes(width, {xTicks: [...new Set(xs)].sort((a, b) => a - b), yTicks: linearTicks(low, high), x, y, xText: number, yText, xName, yName});
    if (mark) parts.push(
      shape("line", {class: "knee", x1: x(mark.x), x2: x(mark.x), y1: TOP, y2: HEIGHT - BOTTOM}),
      label(mark.text, x(mark.x) + (x(mark.x) > width * 0.7 ? -5 : 5), TOP + 10, x(mark.x) > width * 0.7 ? "end" : "start"));
    series.forEach(({name, points}, at) => {
      const path = points.map(([px, py], place) => `${place ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("");
      parts.push(shape("path", {class: "line", d: path, stroke: colour(at), "stroke-dasharray": DASHES[at % 6]}));
      for (const [px, py] of points) parts.push(shape("circle", {
        class: "mark", cx: x(px), cy: y(py), r: 4.5, fill: colour(at), tabindex: 0, "data-tip": `${name}\n${number(px)} ${xName}: ${yText(py)}`,
      }));
    });
    return parts;
  });
}

/** Bars: `groups` of {name, values}, one value for each of `names`; a value may be missing. */
function barChart(container, {groups, names, yName, yText, summary}) {
  legend(container, names, false);
  const high = Math.max(...groups.flatMap(group => group.values.map(value => value ?? 0)), 0) || 1;
  drawn(container, summary, width => {
    const y = value => HEIGHT - BOTTOM - value / high * (HEIGHT - TOP - BOTTOM);
    const step = (width - LEFT - RIGHT) / groups.length, bar = Math.min(48, step * 0.8 / names.length);
    const x = at => LEFT + step * (at + 0.5);
    const parts = axes(width, {xTicks: groups.map((_, at) => at), yTicks: linearTicks(0, high), x, y, xText: at => groups[at].name, yText, xName: "", yName});
    groups.forEach((group, at) => group.values.forEach((value, place) => {
      if (value === null || value === undefined) return;
      const left = x(at) + (place - names.length / 2) * bar;
      parts.push(shape("rect", {
        class: "mark", x: left + 1, y: y(value), width: Math.max(bar - 2, 1), height: Math.max(y(0) - y(value), 1), fill: colour(place),
        tabindex: 0, "data-tip": `${group.name}, ${names[place]}: ${yText(value)}`,
      }));
    }));
    return parts;
  });
}

/** The bins of a histogram of natural numbers: one for 0, then three for every power of ten: 1, 2, 5, 10, 20, 50, ... */
function logBins(values) {
  const starts = [0];
  const largest = values.reduce((most, value) => Math.max(most, value), 1);
  for (let power = 1; power <= largest; power *= 10) starts.push(...[1, 2, 5].map(factor => factor * power).filter(start => start <= largest));
  const bins = starts.map((start, at) => ({start, end: starts[at + 1], count: 0}));
  for (const value of values) bins.findLast(bin => bin.start <= value).count++;
  return bins;
}

/** A histogram of natural numbers over a logarithmic axis. */
function histogram(container, {values, xName, yName, summary}) {
  const bins = logBins(values), high = Math.max(...bins.map(bin => bin.count), 1);
  drawn(container, summary, width => {
    const y = value => HEIGHT - BOTTOM - value / high * (HEIGHT - TOP - BOTTOM);
    const step = (width - LEFT - RIGHT) / bins.length, x = at => LEFT + step * at;
    const isPower = start => start === 0 || Number.isInteger(Math.log10(start));
    const xTicks = bins.map((_, at) => at).filter(at => isPower(bins[at].start));
    const place = at => bins[at].start === 0 ? x(at) + step / 2 : x(at);
    const parts = axes(width, {xTicks, yTicks: linearTicks(0, high).filter(Number.isInteger), x: place, y, xText: at => number(bins[at].start), yText: number, xName, yName});
    bins.forEach((bin, at) => {
      const range = bin.start === 0 ? "0" : bin.end ? bin.end - 1 > bin.start ? `${number(bin.start)} to ${number(bin.end - 1)}` : number(bin.start) : `${number(bin.start)} or more`;
      parts.push(shape("rect", {
        class: "mark", x: x(at) + 1, y: y(bin.count), width: Math.max(step - 2, 1), height: Math.max(y(0) - y(bin.count), bin.count ? 1 : 0),
        fill: bin.start === 0 ? "var(--bad)" : colour(0), tabindex: 0, "data-tip": `${range} ${xName}: ${number(bin.count)} ${yName}`,
      }));
    });
    return parts;
  });
}
