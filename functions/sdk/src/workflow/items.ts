import type { Items } from './graph.ts';

/** A sentence ends with a mark and any closing quotes or brackets, before white space. */
const SENTENCE_END = /[.!?]["')\]]*\s/g;
const LINE_END = /\n/g;

/**
 * Takes the first sentences or lines of a growing text. A line is complete at its line break, and a sentence at the
 * white space after its end, so that later text cannot change it.
 */
export class ItemSplitter {
  readonly #items: Items;
  #text = '';
  #taken = 0;

  constructor(items: Items) {
    this.#items = items;
  }

  /** True when all items are complete. */
  get isFull(): boolean {
    return this.#taken === this.#items.count;
  }

  /** Adds text. Returns the items that it completes, with their indices. */
  push(text: string): { readonly index: number; readonly item: string }[] {
    this.#text += text;
    const complete: { index: number; item: string }[] = [];
    const end = new RegExp(this.#items.by === 'line' ? LINE_END : SENTENCE_END);
    for (let found = end.exec(this.#text); found && !this.isFull; found = end.exec(this.#text)) {
      const item = this.#text.slice(0, end.lastIndex).trim();
      this.#text = this.#text.slice(end.lastIndex);
      end.lastIndex = 0;
      if (item !== '') complete.push({ index: this.#taken++, item });
    }
    return complete;
  }

  /** The remaining items at the end of the text: first the rest of the text, then empty items. */
  end(): { readonly index: number; readonly item: string }[] {
    const rest: { index: number; item: string }[] = [];
    for (let item = this.#text.trim(); !this.isFull; item = '') rest.push({ index: this.#taken++, item });
    return rest;
  }
}
