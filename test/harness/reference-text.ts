import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Backend } from '#gpu-host/backends/backend.ts';
import { createReferenceBackend } from '#gpu-host/backends/reference/index.ts';
import { range, run, sequence, wholeVocabulary } from '#gpu-host/backends/testing/scenario.ts';
import { tinyModel } from './functions.ts';

/** The tiny model's token id for byte 0; each byte has a token. */
const FIRST_BYTE_ID = 3;
const BEGIN = 1;

/** The tiny model's tokens of a text, with the begin-of-text token in front. */
export const tinyTokens = (text: string): number[] => [BEGIN, ...Buffer.from(text).map((byte) => byte + FIRST_BYTE_ID)];

/** Logarithm of each token's probability. */
export type Row = Float32Array;

export function likeliest(row: Row): number {
  return row.indexOf(row.reduce((a, b) => Math.max(a, b)));
}

/**
 * The keys and values of a text in the tiny model's float64 backend. The test decides which tokens stay: no code of the library, the runtime or
 * the GPU host takes part.
 */
export class ReferenceText implements AsyncDisposable {
  readonly #backend: Backend;
  readonly #directory: string;
  #length = 0;

  private constructor(backend: Backend, directory: string) {
    this.#backend = backend;
    this.#directory = directory;
  }

  static async open(): Promise<ReferenceText> {
    const directory = await mkdtemp(path.join(tmpdir(), 'pie-reference-'));
    return new ReferenceText(
      await createReferenceBackend(await tinyModel(directory), { pageSize: 16, pageCount: 8 }),
      directory,
    );
  }

  /** Number of tokens whose keys and values are present. */
  get length(): number {
    return this.#length;
  }

  /** Computes tokens after the present ones; returns a row of log-probabilities for each new token. */
  async add(tokens: readonly number[]): Promise<Row[]> {
    const { config } = this.#backend;
    const context = range(0, this.#length);
    const writes = range(this.#length, this.#length + tokens.length);
    const output = wholeVocabulary(config, tokens.length);
    const [rows] = await run(this.#backend, sequence(config, Uint32Array.from(tokens), { context, writes, output }));
    this.#length += tokens.length;
    return tokens.map((_, i) => rows!.subarray(i * config.vocabularySize, (i + 1) * config.vocabularySize));
  }

  /** Keeps only the tokens at `indices`. These tokens move up to close the gaps, and their keys are rotated to the new positions. */
  keep(indices: readonly number[]): void {
    const shifts = Int32Array.from(indices, (index, i) => i - index);
    this.#backend.copySlots(Uint32Array.from(indices), range(0, indices.length), shifts);
    this.#length = indices.length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#backend.dispose();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

export interface WindowedRead {
  readonly perplexity: number;
  readonly written: readonly number[];
  /** Visible tokens at the end, including the last one, which is not computed. */
  readonly visible: readonly number[];
}

/**
 * Reads a text, then continues it greedily. When more than `sink + window + slack` tokens are visible, keeps only the first `sink` and the
 * last `window` tokens.
 */
export async function readWindowed(
  text: string,
  bounds: { readonly sink: number; readonly window: number; readonly slack: number; readonly maxTokens: number },
): Promise<WindowedRead> {
  const { sink, window, slack, maxTokens } = bounds;
  await using reference = await ReferenceText.open();
  const tokens = tinyTokens(text);
  let visible: number[] = [];
  let surprise = 0;
  let row: Row | undefined;
  const written: number[] = [];
  for (let i = 0; i < tokens.length + maxTokens; i++) {
    const token = tokens[i] ?? likeliest(row!);
    if (i >= tokens.length) written.push(token);
    else if (row) surprise -= row[token]!;
    visible.push(token);
    if (written.length === maxTokens) break;
    if (visible.length > sink + window + slack) {
      const isKept = (at: number) => at < sink || at >= visible.length - window;
      // The backend has no keys and values of the last token yet.
      reference.keep([...Array(visible.length - 1).keys()].filter(isKept));
      visible = visible.filter((_, at) => isKept(at));
    }
    [row] = await reference.add([token]);
  }
  return { perplexity: Math.exp(surprise / (tokens.length - 1)), written, visible };
}
