import type { RunHandle } from '../protocol/client.ts';
import type { Guest } from './guest.ts';
import { GREEDY, must, NONE, range } from './host.ts';

/** A greedily decoded text. */
export interface DecodedText {
  readonly tokens: readonly number[];
  /** Lead of each token's logit over that of the second most probable token, where requested. */
  readonly margins: readonly number[];
}

/** A way of decoding greedily; all ways give the same text. It awaits `between` after each token, or after each chunk of a run. */
export type Way = (
  guest: Guest,
  prompt: readonly number[],
  count: number,
  between: () => Promise<void>,
) => Promise<DecodedText>;

const PAGE_SIZE = 8;

/** Margin below which the two most probable tokens tie: sums in another order differ in their last bits, so either token may follow. */
export const TIE = 1e-4;

/**
 * First index `at` where `text` differs from the text that was decoded alone; undefined for equal texts. `tie` is true when the two most probable
 * tokens tie there.
 */
export function firstDifference(
  text: readonly number[],
  alone: DecodedText,
): { readonly at: number; readonly tie: boolean } | undefined {
  const at = alone.tokens.findIndex((token, i) => text[i] !== token);
  return at < 0 ? undefined : { at, tie: (alone.margins[at] ?? 0) < TIE };
}

/** One fused step per token, each with its two most probable tokens. */
export async function bySteps(
  guest: Guest,
  prompt: readonly number[],
  count: number,
  between: () => Promise<void>,
): Promise<DecodedText> {
  const { inferlet, queue } = guest;
  const pages = allocateFor(guest, prompt.length + count);
  const tokens: number[] = [];
  const margins: number[] = [];
  let inputs = prompt;
  let position = 0;
  while (tokens.length < count) {
    const { distributions } = must(
      await inferlet.ask(queue, {
        op: 'step',
        request: {
          tokens: Uint32Array.from(inputs),
          positions: range(position, position + inputs.length),
          inPages: pages,
          outPages: pages,
          mask: undefined,
          rows: 1,
          output: { tag: 'distributions', val: 2 },
        },
      }),
    );
    const [first, second] = distributions[0]!.logProbabilities;
    position += inputs.length;
    inputs = [distributions[0]!.tokens[0]!];
    tokens.push(inputs[0]!);
    margins.push(first! - second!);
    await between();
  }
  inferlet.freePages(queue, pages);
  return { tokens, margins };
}

/**
 * Sends the prompt in parts without awaiting them, then samples one token per step.
 * @param cuts returns the indexes at which the parts of a prompt of this length end
 */
export function inParts(cuts: (length: number) => readonly number[]): Way {
  return async (guest, prompt, count, between) => {
    const { inferlet, queue } = guest;
    const pages = allocateFor(guest, prompt.length + count);
    const rest = { inPages: pages, outPages: pages, mask: undefined };
    let from = 0;
    for (const to of cuts(prompt.length - 1)) {
      if (to <= from) continue;
      const part = { ...rest, tokens: Uint32Array.from(prompt.slice(from, to)), positions: range(from, to), rows: 0 };
      void inferlet.ask(queue, { op: 'step', request: { ...part, output: { tag: 'none' } } });
      from = to;
    }
    let inputs = prompt.slice(from);
    const tokens: number[] = [];
    while (tokens.length < count) {
      const step = { ...rest, tokens: Uint32Array.from(inputs), positions: range(from, from + inputs.length), rows: 1 };
      const result = must(
        await inferlet.ask(queue, { op: 'step', request: { ...step, output: { tag: 'sample', val: GREEDY } } }),
      );
      from += inputs.length;
      inputs = [result.tokens[0]!];
      tokens.push(inputs[0]!);
      await between();
    }
    inferlet.freePages(queue, pages);
    return { tokens, margins: [] };
  };
}

/** A prefill, then a run on the device. */
export async function byRun(
  guest: Guest,
  prompt: readonly number[],
  count: number,
  between: () => Promise<void>,
): Promise<DecodedText> {
  const { inferlet, queue } = guest;
  const pages = allocateFor(guest, prompt.length + count);
  const last = prompt.length - 1;
  if (last > 0) {
    void inferlet.ask(queue, {
      op: 'step',
      request: {
        tokens: Uint32Array.from(prompt.slice(0, last)),
        positions: range(0, last),
        inPages: pages,
        outPages: pages,
        mask: undefined,
        rows: 0,
        output: { tag: 'none' },
      },
    });
  }
  const run = inferlet.run(queue, {
    token: prompt[last]!,
    position: last,
    pages,
    maxTokens: count,
    sampler: GREEDY,
    stopTokens: NONE,
  });
  const tokens = await drain(run, between);
  inferlet.freePages(queue, pages);
  return { tokens, margins: [] };
}

/** embed-text, forward and next-distribution for each token. */
export async function byThreeCalls(
  guest: Guest,
  prompt: readonly number[],
  count: number,
  between: () => Promise<void>,
): Promise<DecodedText> {
  const { inferlet, queue } = guest;
  const pages = allocateFor(guest, prompt.length + count);
  const embeds = must(inferlet.allocateEmbeds(queue, prompt.length + 1));
  const state = embeds.slice(prompt.length);
  const tokens: number[] = [];
  let inputs = prompt;
  let position = 0;
  while (tokens.length < count) {
    const inputEmbeds = embeds.slice(0, inputs.length);
    inferlet.send(queue, {
      op: 'embed-text',
      tokens: Uint32Array.from(inputs),
      positions: range(position, position + inputs.length),
      embeds: inputEmbeds,
    });
    inferlet.send(queue, {
      op: 'forward',
      inPages: position === 0 ? NONE : pages,
      inEmbeds: inputEmbeds,
      outPages: pages,
      outEmbeds: state,
    });
    const { tokens: best } = must(await inferlet.ask(queue, { op: 'next-distribution', embed: state[0]!, topK: 1 }));
    position += inputs.length;
    inputs = [best[0]!];
    tokens.push(best[0]!);
    await between();
  }
  inferlet.freePages(queue, pages);
  inferlet.freeEmbeds(queue, embeds);
  return { tokens, margins: [] };
}

/** Every token of a run. */
export async function drain(run: RunHandle, between: () => Promise<void> = async () => {}): Promise<number[]> {
  const tokens: number[] = [];
  for (;;) {
    const chunk = must(await run.next());
    tokens.push(...chunk.tokens);
    if (chunk.finished) return tokens;
    await between();
  }
}

function allocateFor({ inferlet, queue }: Guest, tokens: number): Uint32Array {
  return must(inferlet.allocatePages(queue, Math.ceil(tokens / PAGE_SIZE)));
}
