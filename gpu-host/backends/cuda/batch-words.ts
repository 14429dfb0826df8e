import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { Draw, RowChanges, SequenceInput, SequenceOutput, TopRequest } from '../backend.ts';
import { allowedWords } from '../check.ts';
import { CudaAdapter } from './adapter.ts';
import { SlotTables, type TablePlace } from './slot-tables.ts';

/*
 * Encodes a batch as one array of words, and reads its results from another, so that a step costs the addon one call and no walk over
 * objects. `native/addon/batch.h` defines the same layout.
 */

const MAGIC = 0x31454950;
const HEADER_WORDS = 4;
/** Words of a sequence's header: rows, contextCount, outputRows, topK, flags, table, known, adapter. */
const SEQUENCE_WORDS = 8;
/** Words of a draw: temperature, topP, minP, seed, position. */
const DRAW_WORDS = 5;
/** Words before the lists of changed logits: count, frequency, presence. */
const CHANGES_WORDS = 3;
const FLAG = {
  embeds: 1,
  mask: 2,
  writes: 4,
  probabilities: 8,
  states: 16,
  attention: 32,
  allowed: 64,
  draws: 128,
  picked: 256,
  table: 512,
  changes: 1024,
} as const;
/** Size of the first memory for words. */
const FIRST_WORDS = 16 * 1024;

/** Writes batches into its own memory, which grows as needed and is reused. Callers must check the sequences' sizes first. */
export class BatchWords {
  readonly #config: ModelConfig;
  #words = new Uint32Array(FIRST_WORDS);
  #floats = new Float32Array(this.#words.buffer);
  #bytes = new Uint8Array(this.#words.buffer);
  #length = 0;
  readonly #tables: SlotTables;
  /** Place of each sequence's slot list in the device's tables, if it has one; by sequence of the batch. */
  readonly #tablePlaces: (TablePlace | undefined)[] = [];

  /** @param tableSlots number of slots that the device's tables hold */
  constructor(config: ModelConfig, tableSlots = 0) {
    this.#config = config;
    this.#tables = new SlotTables(tableSlots);
  }

  /** Returns words that are valid until the next `write`; the addon copies them. If it refuses them, the caller must call `forgetTables`. */
  write(batch: readonly SequenceInput[]): Uint32Array {
    this.#tables.begin();
    let length = HEADER_WORDS;
    for (const [i, sequence] of batch.entries()) {
      const { mask, context, positions, writes } = sequence;
      const tablePlace = mask === 'causal' ? this.#tables.place(context, positions.length, writes) : undefined;
      this.#tablePlaces[i] = tablePlace;
      length += sequenceWords(this.#config, sequence) - (tablePlace?.known ?? 0);
    }
    this.#grow(length);
    this.#words.set([MAGIC, length, batch.length, 0]);
    this.#length = HEADER_WORDS;
    for (const [i, sequence] of batch.entries()) this.#put(sequence, this.#tablePlaces[i]);
    return this.#words.subarray(0, length);
  }

  /** Forgets what the device's tables hold. */
  forgetTables(): void {
    this.#tables.clear();
  }

  #put(sequence: SequenceInput, tablePlace: TablePlace | undefined): void {
    const { inputs, positions, context, mask, writes, output, adapter } = sequence;
    const words = this.#words;
    const top = output.kind === 'top' ? output : undefined;
    const headerOffset = this.#length;
    words[headerOffset] = positions.length;
    words[headerOffset + 1] = context.length;
    words[headerOffset + 2] = output.kind === 'none' ? 0 : output.rows;
    words[headerOffset + 3] = top ? topKOf(this.#config, top) : 0;
    words[headerOffset + 4] = flagsOf(sequence) | (tablePlace ? FLAG.table : 0);
    words[headerOffset + 5] = tablePlace?.table ?? 0;
    words[headerOffset + 6] = tablePlace?.known ?? 0;
    words[headerOffset + 7] = CudaAdapter.of(adapter)?.id ?? 0;
    this.#length += SEQUENCE_WORDS;
    if (inputs.kind === 'tokens') this.#array(inputs.tokens);
    else if (inputs.kind === 'picked') this.#array(inputs.rows);
    else {
      this.#floats.set(inputs.embeds, this.#length);
      this.#length += inputs.embeds.length;
    }
    this.#array(positions);
    this.#array(tablePlace ? context.subarray(tablePlace.known) : context);
    this.#array(writes);
    if (mask !== 'causal') {
      this.#bytes.set(mask, this.#length * 4);
      this.#length += Math.ceil(mask.length / 4);
    }
    if (top?.allowed) this.#array(top.allowed);
    if (top?.changes) this.#changes(top.changes);
    for (const draw of top?.draws ?? []) this.#draw(draw);
  }

  #array(values: Uint32Array): void {
    this.#words.set(values, this.#length);
    this.#length += values.length;
  }

  #changes({ tokens, values, frequency, presence }: RowChanges): void {
    const offset = this.#length;
    this.#words[offset] = tokens.length;
    this.#floats[offset + 1] = frequency;
    this.#floats[offset + 2] = presence;
    this.#length += CHANGES_WORDS;
    this.#array(tokens);
    this.#floats.set(values, this.#length);
    this.#length += values.length;
  }

  #draw({ temperature, topP, minP, seed, position }: Draw): void {
    const offset = this.#length;
    this.#floats[offset] = temperature;
    this.#floats[offset + 1] = topP;
    this.#floats[offset + 2] = minP;
    this.#words[offset + 3] = seed;
    this.#words[offset + 4] = position;
    this.#length += DRAW_WORDS;
  }

  #grow(length: number): void {
    if (length <= this.#words.length) return;
    this.#words = new Uint32Array(2 ** Math.ceil(Math.log2(length)));
    this.#floats = new Float32Array(this.#words.buffer);
    this.#bytes = new Uint8Array(this.#words.buffer);
  }
}

/** Reads a batch's outputs from the addon's result buffer; the outputs share the buffer's memory. */
export function readResults(
  config: ModelConfig,
  batch: readonly SequenceInput[],
  buffer: ArrayBuffer,
): SequenceOutput[] {
  let byteOffset = 0;
  const floats = (count: number): Float32Array => {
    byteOffset += 4 * count;
    return new Float32Array(buffer, byteOffset - 4 * count, count);
  };
  const tokens = (count: number): Uint32Array => {
    byteOffset += 4 * count;
    return new Uint32Array(buffer, byteOffset - 4 * count, count);
  };
  return batch.map(({ output, attention, context, positions }) => {
    const result = outputOf(config, output, tokens, floats);
    return attention === true ? { ...result, attention: floats(context.length + positions.length) } : result;
  });
}

function outputOf(
  config: ModelConfig,
  output: SequenceInput['output'],
  tokens: (count: number) => Uint32Array,
  floats: (count: number) => Float32Array,
): SequenceOutput {
  if (output.kind === 'none') return { kind: 'none' };
  const { rows } = output;
  if (output.kind === 'states') return { kind: 'states', states: floats(rows * config.hiddenSize) };
  const topK = topKOf(config, output);
  const top = output.draws
    ? { topK, tokens: NO_TOKENS, logProbabilities: NO_FLOATS, drawn: tokens(rows) }
    : {
        topK,
        tokens: tokens(rows * topK),
        logProbabilities: output.tokensOnly === true ? NO_FLOATS : floats(rows * topK),
      };
  if (output.states !== true) return { kind: 'top', ...top };
  return { kind: 'top', ...top, states: floats(rows * config.hiddenSize) };
}

const NO_TOKENS = new Uint32Array(0);
const NO_FLOATS = new Float32Array(0);

function topKOf({ vocabularySize }: ModelConfig, { topK }: TopRequest): number {
  return Math.min(topK, vocabularySize);
}

function flagsOf({ inputs, mask, writes, output, attention }: SequenceInput): number {
  let flags = 0;
  if (inputs.kind === 'embeds') flags |= FLAG.embeds;
  if (inputs.kind === 'picked') flags |= FLAG.picked;
  if (mask !== 'causal') flags |= FLAG.mask;
  if (writes.length > 0) flags |= FLAG.writes;
  if (attention === true) flags |= FLAG.attention;
  if (output.kind === 'states') flags |= FLAG.states;
  if (output.kind !== 'top') return flags;
  if (output.tokensOnly !== true && !output.draws) flags |= FLAG.probabilities;
  if (output.states === true) flags |= FLAG.states;
  if (output.allowed) flags |= FLAG.allowed;
  if (output.draws) flags |= FLAG.draws;
  if (output.changes) flags |= FLAG.changes;
  return flags;
}

function sequenceWords(
  config: ModelConfig,
  { inputs, positions, context, mask, writes, output }: SequenceInput,
): number {
  const n = positions.length;
  let words = SEQUENCE_WORDS + n + context.length + writes.length;
  words += inputs.kind === 'embeds' ? n * config.hiddenSize : n;
  if (mask !== 'causal') words += Math.ceil(mask.length / 4);
  if (output.kind !== 'top') return words;
  if (output.allowed) words += output.rows * allowedWords(config);
  if (output.changes) words += CHANGES_WORDS + 2 * output.changes.tokens.length;
  return words + (output.draws?.length ?? 0) * DRAW_WORDS;
}
