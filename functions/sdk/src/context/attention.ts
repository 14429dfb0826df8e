import { InferletError } from '../errors.ts';
import type { Window } from '../generate/generation-options.ts';
import { checkCount } from '../option-checks.ts';
import { type Context, sequenceOf } from './context.ts';

/**
 * Hides the tokens at positions `[from, to)` from all later computation; the text stays unchanged. The context's last token cannot be
 * hidden. A saved context keeps its hidden tokens. After opening it, saved tokens, and tokens that share a page with them, can be neither
 * hidden nor shown.
 */
export const mask = (context: Context, from: number, to: number): Promise<void> => setMask(context, from, to, true);

/** Shows tokens that {@link mask} has hidden. */
export const unmask = (context: Context, from: number, to: number): Promise<void> => setMask(context, from, to, false);

/**
 * Keeps the last `size` tokens in sight, and the first `sink` tokens if any. Tokens keep their positions, so the model's context length
 * still limits the text. Pages out of sight are freed. Filled tokens see all filled tokens; the window slides with each generated token
 * (Beltagy et al., Longformer, 2020). The tokens of an opened context go out of sight page by page.
 */
export function slidingWindow(options: { readonly size: number; readonly sink?: number }): Window {
  const { size, sink = 0 } = options;
  checkCount('size', size);
  checkCount('sink', sink, 0);
  return {
    endless: false,
    slide: (sequence) => sequence.forget(sink, Math.min(sequence.cached, sequence.tokens.length - size)),
  };
}

/**
 * Allows generation without end: keeps the first `sink` and the last `window` tokens, and renumbers their positions without gaps (Xiao et
 * al., Efficient Streaming Language Models with Attention Sinks, 2024). The context then holds these tokens only. Each move copies the
 * window, so the window moves only after `slack` tokens (a quarter of the window by default). Needs `maxTokens` and a model whose keys can
 * be rotated again.
 */
export function attentionSink(options: {
  readonly sink?: number;
  readonly window: number;
  readonly slack?: number;
}): Window {
  const { sink = 4, window, slack = Math.ceil(window / 4) } = options;
  checkCount('sink', sink, 0);
  checkCount('window', window);
  checkCount('slack', slack, 0);
  return {
    endless: true,
    slide(sequence) {
      const { contextLength, name } = sequence.model;
      if (sink + window + slack >= contextLength) {
        const text = `${sink} + ${window} + ${slack} tokens must be fewer than the context length of ${name} (${contextLength}).`;
        throw new InferletError('invalid-argument', text);
      }
      // Several pending tokens, such as a prompt, are first computed with all tokens in sight.
      if (sequence.pending === 1 && sequence.tokens.length > sink + window + slack) sequence.compact(sink, window);
    },
  };
}

async function setMask(context: Context, from: number, to: number, hidden: boolean): Promise<void> {
  const sequence = sequenceOf(context);
  const computed = sequence.prefill();
  sequence.mask(from - sequence.base, to - sequence.base, hidden);
  await computed;
}
