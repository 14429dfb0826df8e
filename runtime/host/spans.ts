import type { Span, SpanReport } from '#scheduler/invocations/types.ts';
import { type Redact, redactNothing } from './environment/redact.ts';

const MAX_SPANS = 64;
const MAX_NAME_CHARACTERS = 80;
const MAX_KIND_CHARACTERS = 32;

/** The spans that an inferlet has recorded. Keeps a bounded number, failed ones first, then the longest: the page of the invocation draws each. */
export class Spans {
  readonly #now: () => number;
  readonly #startedAt: number;
  readonly #keptSpans: Span[] = [];
  #otherCount = 0;

  /** @param now the clock of the inferlet's `runtime.now` */
  constructor(now: () => number = Date.now) {
    this.#now = now;
    this.#startedAt = now();
  }

  /** Records a span. Its times are values of the inferlet's `runtime.now`; they are clamped to the time from the start until now. */
  add(name: string, kind: string, began: number, ended: number, failed: boolean): void {
    const sinceMs = Math.max(0, this.#now() - this.#startedAt);
    const clamp = (at: number, fromMs: number) => Math.min(sinceMs, Math.max(fromMs, at - this.#startedAt));
    const fromMs = clamp(began, 0);
    const toMs = clamp(ended, fromMs);
    const span: Span = { name: cutText(name), kind: cutText(kind), fromMs, toMs, ...(failed && { failed }) };
    if (this.#keptSpans.length < MAX_SPANS) {
      this.#keptSpans.push(span);
      return;
    }
    this.#otherCount++;
    let leastIndex = 0;
    for (let i = 1; i < MAX_SPANS; i++)
      if (worth(this.#keptSpans[i]) < worth(this.#keptSpans[leastIndex])) leastIndex = i;
    if (worth(span) > worth(this.#keptSpans[leastIndex])) this.#keptSpans[leastIndex] = span;
  }

  /** @param redact removes secrets from names and kinds */
  report(redact: Redact = redactNothing): SpanReport {
    const shortText = (text: string, characters: number) => {
      const isCut = text.length > characters;
      return shortened(redact(isCut ? text.slice(0, characters) : text, isCut), isCut, characters);
    };
    const spans = this.#keptSpans
      .toSorted((a, b) => a.fromMs - b.fromMs || b.toMs - a.toMs)
      .map((span) => ({
        ...span,
        name: shortText(span.name, MAX_NAME_CHARACTERS),
        kind: shortText(span.kind, MAX_KIND_CHARACTERS),
      }));
    return { ...(spans.length > 0 && { spans }), ...(this.#otherCount > 0 && { moreSpans: this.#otherCount }) };
  }
}

/** The arguments of `record-span`, with texts cut to the length that a report can need. */
export const cutSpan = (args: readonly unknown[]): readonly unknown[] =>
  args.map((value) => (typeof value === 'string' ? cutText(value) : value));

/** Order in which spans are kept: a failed span is worth more than any other, then a longer span is worth more. */
const worth = (span: Span | undefined): number =>
  span ? span.toMs - span.fromMs + (span.failed ? Number.MAX_SAFE_INTEGER : 0) : 0;

/** Cuts a text to one character more than is shown, so that `report` notices the cut. The copy keeps the whole text out of memory. */
const cutText = (text: string): string =>
  text.length > MAX_NAME_CHARACTERS ? Buffer.from(text.slice(0, MAX_NAME_CHARACTERS + 1)).toString() : text;

/** Makes an untrusted text safe for one line: replaces control characters and marks that change the direction of the text after them. */
function shortened(text: string, isCut: boolean, characters: number): string {
  const clean = text.replace(/\p{Cc}|\p{Bidi_Control}|[\u2028\u2029]/gu, '\ufffd');
  if (!isCut && clean.length <= characters) return clean;
  return `${clean.slice(0, characters - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}
