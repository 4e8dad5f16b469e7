// Reads the packed columns of the page, and both vocabularies from them.
"use strict";

const FLAG = {added: 1, outside: 2, unreachable: 4};

/** The columns of the page by name, as bytes. */
async function readColumns(text) {
  const packed = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = new Uint8Array(await new Response(stream).arrayBuffer());
  const end = data.indexOf(10), columns = {};
  let at = end + 1;
  for (const [name, length] of JSON.parse(new TextDecoder().decode(data.subarray(0, end)))) {
    columns[name] = data.subarray(at, at + length);
    at += length;
  }
  return columns;
}

/** The natural numbers of a column: seven bits a byte, the lowest first. */
function numbers(column) {
  const values = [];
  let value = 0, factor = 1;
  for (const byte of column) {
    value += (byte & 127) * factor;
    factor *= 128;
    if (byte < 128) { values.push(value); value = 0; factor = 1; }
  }
  return values;
}

const signed = value => value % 2 ? -(value + 1) / 2 : value / 2;

/** A string with one character for every byte. */
function binary(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode.apply(null, bytes.subarray(at, at + 8192));
  return text;
}

const encoder = new TextEncoder(), decoder = new TextDecoder("utf-8", {ignoreBOM: true});
const strict = new TextDecoder("utf-8", {ignoreBOM: true, fatal: true});

/** The tokens of a tokenizer, by ascending id. Everything about a token is at its place in these lists. */
class Vocabulary {
  constructor(settings, columns) {
    this.settings = settings;
    this.byteLevel = settings.kind === "byte-level";
    Object.assign(this, columns);
    this.size = this.ids.length;
    this.placeOfId = new Map(this.ids.map((id, place) => [id, place]));
  }

  /** The bytes of a token, as a string with one character for every byte. */
  bytes(place) {
    if (this.byteLevel) return this.keys[place];
    const byte = /^<0x([0-9A-F]{2})>$/.exec(this.keys[place]);
    return byte ? String.fromCharCode(parseInt(byte[1], 16)) : binary(encoder.encode(this.keys[place].replaceAll("▁", " ")));
  }

  /** The text of a token; null if its bytes are not text. */
  text(place) {
    if (this.byteLevel && /^[\x00-\x7f]*$/.test(this.keys[place])) return this.keys[place];
    return asText(this.bytes(place));
  }

  /** The place of a token that the model can make, by its key: bytes, or the string of a SentencePiece vocabulary. */
  place(key) {
    if (!this.places) {
      this.places = new Map();
      this.keys.forEach((known, place) => { if (!(this.flags[place] & FLAG.outside)) this.places.set(known, place); });
    }
    return this.places.get(key);
  }

  isAdded(place) { return (this.flags[place] & FLAG.added) !== 0; }
}

function asText(bytes) {
  try { return strict.decode(Uint8Array.from(bytes, character => character.charCodeAt(0))); } catch { return null; }
}

/** The keys, splits and scripts of the tokens that a tokenizer has on its own. */
function ownTokens(columns, side, byteLevel) {
  const text = columns[side + ".text"], keys = [];
  let at = 0;
  for (const length of numbers(columns[side + ".lengths"])) {
    const key = text.subarray(at, at + length);
    keys.push(byteLevel ? binary(key) : decoder.decode(key));
    at += length;
  }
  const names = decoder.decode(columns[side + ".script_names"]).split("\n");
  return {keys, splits: numbers(columns[side + ".splits"]), scripts: Array.from(columns[side + ".scripts"], at => names[at])};
}

function ids(column) {
  let id = -1;
  return numbers(column).map(step => id += step);
}

function baseVocabulary(settings, columns) {
  const own = ownTokens(columns, "base", settings.kind === "byte-level");
  return new Vocabulary(settings, {
    ...own, ids: ids(columns["base.ids"]), flags: columns["base.flags"], mergeOrder: columns["base.merges"],
  });
}

/** The new vocabulary. `sources` has the place of each token in the base, -1 for new ones. */
function newVocabulary(settings, columns, base) {
  const own = ownTokens(columns, "new", settings.kind === "byte-level");
  const shares = base.settings.kind === settings.kind;
  const keys = [], splits = [], scripts = [], sources = [];
  let expected = 0, used = 0;
  for (const value of numbers(columns["new.sources"])) {
    const source = value ? expected + signed(value - 1) : -1;
    if (value) expected = source + 1;
    sources.push(source);
    const from = value && shares ? base : own, at = from === own ? used++ : source;
    keys.push(from.keys[at]);
    splits.push(from.splits[at]);
    scripts.push(from.scripts[at]);
  }
  const moved = shares ? numbers(columns["new.moved_splits"]) : [];
  for (let at = 0, place = 0; at < moved.length; at += 2) splits[place += moved[at]] = moved[at + 1];
  return new Vocabulary(settings, {
    keys, splits, scripts, sources, ids: ids(columns["new.ids"]), flags: columns["new.flags"], mergeOrder: columns["new.merges"],
  });
}
