import type { AbortSignalLike } from '../abort.ts';
import { InferletError } from '../errors.ts';
import type { Sampler } from '../generate/samplers.ts';
import { thoughtFormat } from './chat.ts';
import { type Context, sequenceOf } from './context.ts';
import { detokenize, specialTokens, tokenize } from './models.ts';
import { answerHeader, closesThought, opensThought, ThoughtText } from './thought-marks.ts';

/** Options of {@link Context.think}. */
export interface ThinkOptions {
  /**
   * Maximum tokens of the thought, its marks not counted. When they are used up, the library ends the thought with the template's own text. By
   * default, the model's context is the limit.
   */
  readonly maxTokens?: number;
  /** The sampler that picks tokens; greedy by default. */
  readonly sampler?: Sampler;
  /** An aborted signal ends the thought with an error, as in `GenerateOptions`. */
  readonly signal?: AbortSignalLike;
}

/**
 * The reason why a thought ended.
 *
 * - `none`: the model writes no thought here: it has no thoughts, the prompt turns them off, or its text begins with something else.
 * - `mark`: the model ended its thought.
 * - `budget`: `maxTokens` were generated.
 * - `stop-token`: the model ended its whole text inside the thought.
 * - `context-length`: the model's context is full.
 */
export type ThoughtEnding = 'none' | 'mark' | 'budget' | 'stop-token' | 'context-length';

/** A finished thought. */
export interface Thought {
  /** The thought without its marks and without white space around it. */
  readonly text: string;
  readonly ending: ThoughtEnding;
}

/** Tokens at the end of a prompt that may belong to a mark. */
const PROMPT_TOKENS = 32;

/**
 * A thought being generated. Iterate it for pieces of its text, or {@link collect} it. After `mark` and `budget`, the context stands behind the end
 * of the thought, ready for the answer; after `none` it is as before, with the {@link header} of an answer if the template has one. Iterate a
 * thought once.
 */
export class Thinking implements AsyncIterable<string> {
  /** The thought so far. */
  text = '';
  /** Set when the thought has ended. */
  ending: ThoughtEnding | undefined;
  /** Text at the end of the context with which the template opens an answer, such as `<|channel|>final<|message|>`; empty in most templates. */
  header = '';
  /** Number of tokens of {@link header}. */
  headerTokens = 0;
  readonly #context: Context;
  readonly #options: ThinkOptions;

  /** @internal Constructed by `Context.think`. */
  constructor(context: Context, options: ThinkOptions) {
    this.#context = context;
    this.#options = options;
  }

  /** Pieces of the thought, none empty. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, void> {
    if (this.ending !== undefined) return;
    const context = this.#context;
    const { name } = context.model;
    const format = thoughtFormat(name);
    const prompt = endOf(context);
    if (!format || closesThought(prompt, format)) {
      this.ending = 'none';
      return;
    }
    const isOpen = opensThought(prompt, format);
    const header = answerHeader(prompt, format);
    const start = context.length;
    const { pending } = sequenceOf(context);
    const begin = markOf(format.begin, name);
    const thought = new ThoughtText({ begin: format.begin, shownBegin: begin.shown }, isOpen);
    const end = markOf(format.end, name);
    const { maxTokens, sampler, signal } = this.#options;
    const generation = context.generate({
      ...(sampler && { sampler }),
      ...(signal && { signal }),
      // A shorter limit would hide whether the text begins with a thought.
      ...(maxTokens !== undefined && { maxTokens: isOpen ? maxTokens : Math.max(maxTokens, begin.length) }),
      ...(end.token === undefined ? { stop: format.end } : { stopTokens: [end.token] }),
    });
    for await (const piece of generation.pieces()) {
      const shown = thought.push(piece.text, () => detokenize(generation.tokens, { model: name, special: true }));
      if (thought.isThought === false) break;
      if (shown === '') continue;
      this.text = thought.text;
      yield shown;
    }
    if (!thought.isThought) {
      context.truncate(start);
      // The decoder of the next generation must find the prompt as this one did: it may draw the first token behind uncomputed tokens in another way.
      const again = Math.min(pending, 2);
      const tokens = context.tokens.slice(start - again);
      if (start >= again && tokens.every((token) => token >= 0)) context.truncate(start - again).fill(tokens);
      this.ending = this.#opened('', header) ? 'none' : 'context-length';
      return;
    }
    const { finishReason, stoppedBy } = generation;
    const isMarked = stoppedBy === (end.token ?? format.end);
    if (isMarked || finishReason === 'max-tokens') {
      // A model that ends its thought has written the white space before the mark.
      const close = isMarked ? format.close.trimStart() : format.close;
      const isReady = this.#opened(close.slice(0, close.length - header.length), header);
      this.ending = isReady ? (isMarked ? 'mark' : 'budget') : 'context-length';
    } else this.ending = finishReason === 'stop-token' ? 'stop-token' : 'context-length';
  }

  /** Generates the thought to its end. */
  async collect(): Promise<Thought> {
    for await (const _ of this);
    return { text: this.text, ending: this.ending ?? 'none' };
  }

  /** Appends the end of the thought and the header of the answer. @returns false when the context has no room for them */
  #opened(close: string, header: string): boolean {
    const context = this.#context;
    try {
      context.fill(close, { special: true });
      const before = context.length;
      context.fill(header, { special: true });
      this.header = header;
      this.headerTokens = context.length - before;
      return true;
    } catch (error) {
      if (error instanceof InferletError && error.code === 'context-overflow') return false;
      throw error;
    }
  }
}

/** The last text of a context, with its special tokens. */
function endOf({ tokens, model: { name } }: Context): string {
  const tail = tokens.slice(-PROMPT_TOKENS).filter((token) => token >= 0);
  return detokenize(tail, { model: name, special: true });
}

/** The template's text between a prompt and the beginning of an answer without a thought: the end of a thought that the prompt opens, or a header. */
export function answerOpening(context: Context): string {
  const format = thoughtFormat(context.model.name);
  const prompt = endOf(context);
  if (!format || closesThought(prompt, format)) return '';
  return opensThought(prompt, format) ? format.close : answerHeader(prompt, format);
}

/** A mark's number of tokens, the part of it that generated text shows, and the token that stands for a mark with special tokens. */
function markOf(mark: string, name: string): { length: number; shown: string; token: number | undefined } {
  const ids = tokenize(mark, { model: name, special: true });
  const isHidden = (id: number) => detokenize([id], { model: name }) === '';
  const { bos, eos } = specialTokens(name);
  const [first] = ids;
  const isOwn = first !== undefined && isHidden(first) && first !== bos && !eos.includes(first);
  const shown = ids.some(isHidden) ? detokenize(ids, { model: name }).trim() : mark;
  return { length: ids.length, shown, token: isOwn ? first : undefined };
}
