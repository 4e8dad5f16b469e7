// Runs a tokenizer: added tokens, normalization, pre-tokenization by automata, BPE. The tables are those of the core, so
// that the result does not depend on the Unicode version of the browser.
"use strict";

const WHITE = "[\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]*";
const LEADING = new RegExp("^" + WHITE), TRAILING = new RegExp(WHITE + "$");

/** Normalization forms C and KC by tables of the core. */
class Normalizer {
  constructor(tables) {
    this.canonical = new Map(tables.canonical);
    this.compatible = new Map([...tables.compatible]);
    this.classes = new Map(tables.classes);
    this.pairs = new Map(tables.compositions.map(([first, second, composed]) => [first * 0x200000 + second, composed]));
  }

  normalize(text, form) {
    if (/^[\x00-\x7f]*$/.test(text)) return text;
    const table = form === "nfkc" ? this.compatible : this.canonical, codes = [];
    for (const character of text) this.decompose(character, table, codes);
    this.order(codes);
    return this.compose(codes).map(code => String.fromCodePoint(code)).join("");
  }

  decompose(character, table, codes) {
    const code = character.codePointAt(0), syllable = code - 0xac00;
    if (syllable >= 0 && syllable < 11172) {
      codes.push(0x1100 + Math.floor(syllable / 588), 0x1161 + Math.floor(syllable % 588 / 28));
      if (syllable % 28) codes.push(0x11a7 + syllable % 28);
    } else for (const part of table.get(code) ?? character) codes.push(part.codePointAt(0));
  }

  classOf(code) { return this.classes.get(code) ?? 0; }

  /** Sorts every run of combining marks by their class; marks of one class stay in order. */
  order(codes) {
    for (let start = 0; start < codes.length; start++) {
      if (!this.classOf(codes[start])) continue;
      let end = start;
      while (end < codes.length && this.classOf(codes[end])) end++;
      const marks = codes.slice(start, end).sort((a, b) => this.classOf(a) - this.classOf(b));
      marks.forEach((mark, at) => codes[start + at] = mark);
      start = end;
    }
  }

  compose(codes) {
    const composed = [];
    let starter = -1, last = -1;  // the class of the mark before, since the starter
    for (const code of codes) {
      const own = this.classOf(code);
      const pair = starter >= 0 && last < own || starter >= 0 && last === -1 ? this.pair(composed[starter], code) : undefined;
      if (pair !== undefined) { composed[starter] = pair; continue; }
      if (own === 0) { starter = composed.length; last = -1; } else last = own;
      composed.push(code);
    }
    return composed;
  }

  pair(first, second) {
    const leading = first - 0x1100, vowel = second - 0x1161, trailing = second - 0x11a7, syllable = first - 0xac00;
    if (leading >= 0 && leading < 19 && vowel >= 0 && vowel < 21) return 0xac00 + leading * 588 + vowel * 28;
    if (syllable >= 0 && syllable < 11172 && syllable % 28 === 0 && trailing > 0 && trailing < 28) return first + trailing;
    return this.pairs.get(first * 0x200000 + second);
  }
}

/** The normalizer and pre-tokenizer of a tokenizer: text to pretokens. */
class Pipeline {
  constructor(description) {
    this.steps = description.steps;
    this.end = description.end;
    this.starts = description.classes.map(run => run[0]);
    this.classes = description.classes.map(run => run[1]);
    this.ascii = Array.from({length: 128}, (_, code) => this.search(code));
    this.normalizer = description.normalization && new Normalizer(description.normalization);
  }

  search(code) {
    let low = 0, high = this.starts.length;
    while (high - low > 1) { const middle = (low + high) >> 1; if (this.starts[middle] <= code) low = middle; else high = middle; }
    return this.classes[low];
  }

  classOf(code) { return code < 128 ? this.ascii[code] : this.search(code); }

  /** The pretokens of a text between added tokens. `binary` pretokens have one character for every byte. */
  pretokens(text, isStart, asBytes) {
    let pieces = [text], areBytes = false;
    for (const step of this.steps) {
      if (step.matcher?.byte_classes && !areBytes) { pieces = pieces.map(piece => binary(encoder.encode(piece))); areBytes = true; }
      pieces = pieces.filter(piece => piece).flatMap(piece => this.apply(step, piece, isStart));
    }
    if (asBytes && !areBytes) pieces = pieces.map(piece => binary(encoder.encode(piece)));
    return pieces.filter(piece => piece);
  }

  apply(step, text, isStart) {
    if (step.type === "normalize") return [this.normalizer.normalize(text, step.form)];
    if (step.type === "prefix") {
      const wanted = step.rule === "always" || !text.startsWith(step.prefix) && (step.rule === "missing" || isStart);
      return [wanted ? step.prefix + text : text];
    }
    const matches = this.matches(step.matcher, text);
    if (step.type === "split") return split(text, matches, step);
    let replaced = "", done = 0;
    for (const [start, end] of matches) { replaced += text.slice(done, start) + step.content; done = end; }
    return [replaced + text.slice(done)];
  }

  /** The start and end of every match in a text. */
  matches({next, width, byte_classes}, text) {
    const found = [];
    for (let start = 0; start < text.length;) {
      let at = start, state = width, end = start;
      for (;;) {
        const code = text.codePointAt(at);
        const read = code === undefined ? this.end : byte_classes ? byte_classes[code] : this.classOf(code);
        const step = next[state + read];
        if (step & 1) end = at;
        state = step >> 1;
        if (!state) break;
        at += code > 0xffff ? 2 : 1;
      }
      if (end > start) { found.push([start, end]); start = end; } else start += text.codePointAt(start) > 0xffff ? 2 : 1;
    }
    return found;
  }
}

/** A text, split at matches by the behaviours of `tokenizers`. */
function split(text, matches, {behavior, invert}) {
  const parts = [];
  let done = 0;
  for (const [start, end] of matches) {
    if (done < start) parts.push([text.slice(done, start), invert]);
    parts.push([text.slice(start, end), !invert]);
    done = end;
  }
  if (done < text.length) parts.push([text.slice(done), invert]);
  if (behavior === "removed") return parts.filter(part => !part[1]).map(part => part[0]);
  const joins = {
    isolated: () => false, previous: (left, right) => !left && right, next: (left, right) => left && !right,
    contiguous: (left, right) => left === right,
  }[behavior];
  const joined = [];
  for (const [part, isMatch] of parts) {
    const before = joined[joined.length - 1];
    if (before && joins(before[1], isMatch)) joined[joined.length - 1] = [before[0] + part, isMatch]; else joined.push([part, isMatch]);
  }
  return joined.map(part => part[0]);
}

/** Finds added tokens: first those of raw text, then, in what is left, those of normalized text. */
class AddedTokens {
  constructor(added) {
    this.passes = [false, true].map(normalized => {
      const byFirst = new Map();
      for (const [id, content, lstrip, rstrip, isNormalized] of added) {
        if (isNormalized !== normalized || !content) continue;
        if (!byFirst.has(content[0])) byFirst.set(content[0], []);
        byFirst.get(content[0]).push({id, content, lstrip, rstrip});
      }
      for (const tokens of byFirst.values()) tokens.sort((a, b) => b.content.length - a.content.length);
      return byFirst;
    });
  }

  /** The parts of a text: strings with the place where they start, and ids of added tokens. */
  split(text, at = 0, pass = 0) {
    if (pass === this.passes.length) return text ? [{text, at}] : [];
    const parts = [], byFirst = this.passes[pass];
    let done = 0, place = 0;
    while (byFirst.size && place < text.length) {
      const token = byFirst.get(text[place])?.find(known => text.startsWith(known.content, place));
      if (!token) { place++; continue; }
      let start = place, end = place = place + token.content.length;
      if (token.lstrip) start = Math.max(text.slice(0, start).replace(TRAILING, "").length, done);
      if (token.rstrip) end += LEADING.exec(text.slice(end))[0].length;
      if (done < start) parts.push(...this.split(text.slice(done, start), at + done, pass + 1));
      parts.push({id: token.id});
      done = end;
    }
    return [...parts, ...this.split(text.slice(Math.min(done, text.length)), at + done, pass + 1)];
  }
}
