// Encodes pretokens by merges, lowest rank first, as the core does.
"use strict";

/** A tokenizer that runs in the page. */
class Encoder {
  constructor(vocabulary) {
    this.vocabulary = vocabulary;
    const {settings} = vocabulary;
    this.reason = settings.pipeline.reason;
    if (!this.reason) {
      this.pipeline = new Pipeline(settings.pipeline);
      this.added = new AddedTokens(settings.added);
    }
    this.cache = new Map();
  }

  /** The places of the tokens of a text. */
  encode(text) {
    const places = [], {vocabulary} = this;
    for (const part of this.added.split(text)) {
      if (part.id !== undefined) { places.push(vocabulary.placeOfId.get(part.id)); continue; }
      for (const pretoken of this.pipeline.pretokens(part.text, part.at === 0, vocabulary.byteLevel)) {
        for (const place of this.pretoken(pretoken)) places.push(place);
      }
    }
    return places;
  }

  pretoken(key) {
    let places = this.cache.get(key);
    if (places === undefined) {
      const whole = this.vocabulary.settings.ignoreMerges ? this.vocabulary.place(key) : undefined;
      places = whole === undefined ? this.byMerges(key) : [whole];
      if (this.cache.size > 200000) this.cache.clear();
      this.cache.set(key, places);
    }
    return places;
  }

  /** The tokens that bytes are split into if they are one pretoken, such as the bytes of a token. */
  pieces(bytes) {
    if (this.vocabulary.byteLevel) return this.pretoken(bytes);
    const text = asText(bytes);
    if (text !== null) return this.pretoken(text.replaceAll(" ", "▁"));
    return Array.from(bytes, byte => this.byte(byte.charCodeAt(0))).filter(place => place !== undefined);
  }

  byte(value) { return this.vocabulary.place(`<0x${value.toString(16).toUpperCase().padStart(2, "0")}>`); }

  byMerges(key) {
    return this.merge(this.symbols(key));
  }

  /** The symbols that merging starts from: characters, or bytes. */
  symbols(key) {
    const {vocabulary} = this, {byteFallback, fuseUnknown, unknown} = vocabulary.settings, symbols = [];
    let pending;
    for (const character of key) {
      const place = vocabulary.place(character);
      if (place !== undefined) {
        if (pending !== undefined) symbols.push(pending);
        pending = undefined;
        symbols.push(place);
        continue;
      }
      const bytes = byteFallback ? Array.from(encoder.encode(character), byte => this.byte(byte)) : [undefined];
      if (!bytes.includes(undefined)) symbols.push(...bytes);
      else if (unknown !== null) {
        if (pending !== undefined && !fuseUnknown) symbols.push(pending);
        pending = vocabulary.placeOfId.get(unknown);
      }
    }
    if (pending !== undefined) symbols.push(pending);
    return symbols;
  }

  /** The rank of the merge of every pair that merges, and the tokens that merges make, by rank. */
  get merges() {
    if (this.ranks) return this.ranks;
    const {vocabulary} = this, {keys, splits, size} = vocabulary;
    const ranks = new Map(), products = [];
    let product = -1;
    for (const step of numbers(vocabulary.mergeOrder)) {
      product += signed(step);
      const key = vocabulary.byteLevel ? keys[product] : binary(encoder.encode(keys[product]));
      const part = bytes => vocabulary.place(vocabulary.byteLevel ? bytes : asText(bytes));
      const left = part(key.slice(0, splits[product])), right = part(key.slice(splits[product]));
      ranks.set(left * size + right, products.length);
      products.push(product);
    }
    return this.ranks = {ranks, products};
  }

  /** Merges symbols until no merge applies: lowest rank first, then leftmost. */
  merge(symbols) {
    const {ranks, products} = this.merges, {size} = this.vocabulary, n = symbols.length;
    if (n < 2) return symbols;
    const next = symbols.map((_, at) => at + 1), before = symbols.map((_, at) => at - 1), heap = new Heap();
    const consider = at => {
      if (at < 0 || next[at] >= n) return;
      const rank = ranks.get(symbols[at] * size + symbols[next[at]]);
      if (rank !== undefined) heap.push(rank * n + at);
    };
    for (let at = 0; at < n; at++) consider(at);
    for (let top = heap.pop(); top !== undefined; top = heap.pop()) {
      const at = top % n, rank = (top - at) / n, right = next[at];
      // A pair that is no longer there: one of its symbols was merged with another.
      if (symbols[at] < 0 || right >= n || ranks.get(symbols[at] * size + symbols[right]) !== rank) continue;
      symbols[at] = products[rank];
      symbols[right] = -1;
      next[at] = next[right];
      if (next[at] < n) before[next[at]] = at;
      consider(before[at]);
      consider(at);
    }
    return symbols.filter(place => place >= 0);
  }
}

/** The smallest of some numbers, again and again. */
class Heap {
  constructor() { this.values = []; }

  push(value) {
    const {values} = this;
    let at = values.length;
    for (let parent; at && values[parent = (at - 1) >> 1] > value; at = parent) values[at] = values[parent];
    values[at] = value;
  }

  pop() {
    const {values} = this, top = values[0], value = values.pop(), n = values.length;
    if (!n) return top;
    let at = 0;
    for (let child; (child = 2 * at + 1) < n; at = child) {
      if (child + 1 < n && values[child + 1] < values[child]) child++;
      if (values[child] >= value) break;
      values[at] = values[child];
    }
    values[at] = value;
    return top;
  }
}
