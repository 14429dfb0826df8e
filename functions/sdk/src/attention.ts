import { type Context, sequenceOf } from './context.ts';
import { InferletError } from './errors.ts';
import type { Window } from './generation-options.ts';

/**
 * Hides the tokens at positions `[from, to)` from everything that is computed later; the text stays as it is. The context's last token cannot
 * be hidden. A saved context keeps what is hidden; where it is opened, what was saved (and what shares a page with it) can be neither hidden
 * nor shown.
 */
export const mask = (context: Context, from: number, to: number): Promise<void> => setMask(context, from, to, true);

/** Shows tokens again that {@link mask} has hidden. */
export const unmask = (context: Context, from: number, to: number): Promise<void> => setMask(context, from, to, false);

/**
 * Keeps the last `size` tokens in sight, and the first `sink` ones if any; their positions stay those of the text, which still ends at the
 * model's context. Memory that is out of sight is given back. What was filled in is computed with all of it in sight; the window slides with
 * each token generated (Beltagy et al., Longformer, 2020). What a saved context was opened with goes out of sight page by page.
 */
export function slidingWindow(options: { readonly size: number; readonly sink?: number }): Window {
  const { size, sink = 0 } = options;
  checkCount('size', size, 1);
  checkCount('sink', sink, 0);
  return {
    endless: false,
    slide: (sequence) => sequence.forget(sink, Math.min(sequence.cached, sequence.tokens.length - size)),
  };
}

/**
 * Goes on for ever: keeps the first `sink` and the last `window` tokens, and moves those up so that positions count what is kept, not the
 * text (Xiao et al., Efficient Streaming Language Models with Attention Sinks, 2024). The context then holds these tokens only. It moves
 * once `slack` tokens are too many (a quarter of the window by default), since each move copies the window. Needs keys that can be rotated
 * anew, and `maxTokens`.
 */
export function attentionSink(options: {
  readonly sink?: number;
  readonly window: number;
  readonly slack?: number;
}): Window {
  const { sink = 4, window, slack = Math.ceil(window / 4) } = options;
  checkCount('sink', sink, 0);
  checkCount('window', window, 1);
  checkCount('slack', slack, 0);
  return {
    endless: true,
    slide(sequence) {
      const { contextLength, name } = sequence.model;
      if (sink + window + slack >= contextLength) {
        const text = `${sink} + ${window} + ${slack} tokens do not fit the context of ${name} (${contextLength}).`;
        throw new InferletError('invalid-argument', text);
      }
      // What is pending is computed first, with all in sight.
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

function checkCount(name: string, value: number, least: number): void {
  if (Number.isInteger(value) && value >= least) return;
  throw new InferletError('invalid-argument', `${name} must be a whole number, ${least} or more, not ${value}.`);
}
