import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { VisionConfig } from '#gpu-host/models/vision/config.ts';
import type { DeviceAdapter, SequenceInput, TopRequest } from './backend.ts';

/**
 * Error for input that a backend refuses before it computes anything: input that does not fit the model or the pool, or is not finite.
 *
 * `forward` refuses the whole batch. A caller that batches calls of many inferlets therefore runs {@link checkSequence} on each call's
 * sequence when it prepares that call, and answers that call alone with the error.
 */
export class InvalidInput extends RangeError {
  override readonly name = 'InvalidInput';
}

/** Error for work that is refused because it would take more memory than is free. The message has both figures. */
export class TooLittleMemory extends Error {
  override readonly name = 'TooLittleMemory';
}

/**
 * Throws {@link InvalidInput} when a sequence does not fit the model or the pool of `slotCount` slots, or has embeds that are not finite:
 * a NaN would spread through every key of its call. Handlers check inferlets' requests; this check is the last line of defence, because a
 * bad slot would silently overwrite another inferlet's keys. Masks' values are not checked.
 */
export function checkSequence(config: ModelConfig, slotCount: number, sequence: SequenceInput): void {
  checkInputs(config, sequence);
  checkSlots(slotCount, sequence.context);
  checkSlots(slotCount, sequence.writes);
}

/** {@link checkSequence} without the slots, for callers of a backend that `checksSlots`: it saves a pass over the thousands of context slots. */
export function checkInputs(config: ModelConfig, sequence: SequenceInput): void {
  checkSizes(config, sequence);
  const { inputs } = sequence;
  if (inputs.kind === 'tokens') checkTokens(config, inputs.tokens);
  else if (inputs.kind === 'embeds') checkFinite(inputs.embeds, config.hiddenSize, 'Embed');
}

/** The part of {@link checkSequence} that reads no values: a backend may check the values itself where it copies them. */
export function checkSizes(config: ModelConfig, sequence: SequenceInput): void {
  const { inputs, positions, context, mask, writes, output, attention, adapter } = sequence;
  const n = positions.length;
  if (n === 0) throw new InvalidInput('A sequence needs at least one input.');
  if (inputs.kind === 'tokens') {
    if (inputs.tokens.length !== n) throw new InvalidInput(`${inputs.tokens.length} tokens for ${n} positions.`);
  } else if (inputs.kind === 'picked') {
    if (inputs.rows.length !== n) throw new InvalidInput(`${inputs.rows.length} picked tokens for ${n} positions.`);
  } else if (inputs.embeds.length !== n * config.hiddenSize) {
    throw new InvalidInput(`${inputs.embeds.length} embed values for ${n} positions of ${config.hiddenSize}.`);
  }
  if (mask !== 'causal' && mask.length !== n * (context.length + n)) {
    throw new InvalidInput(`A mask of ${mask.length} values for ${n} inputs over ${context.length} slots.`);
  }
  if (writes.length !== 0 && writes.length !== n) throw new InvalidInput(`${writes.length} slots for ${n} inputs.`);
  if (attention === true && adapter)
    throw new InvalidInput('Attention cannot be returned for a sequence with an adapter.');
  if (output.kind === 'none') return;
  if (output.rows < 1 || output.rows > n) throw new InvalidInput(`${output.rows} output rows of ${n} inputs.`);
  if (output.kind === 'top') checkTop(config, output);
}

/** Number of tokens that a batch picks: `picked` inputs of the next batch may name this many rows. */
export function pickedRows(batch: readonly SequenceInput[]): number {
  let rows = 0;
  for (const { output } of batch) if (output.kind === 'top') rows += output.rows;
  return rows;
}

/** Throws {@link InvalidInput} unless each `picked` row is below `rowsBefore`, the previous batch's number of picks (0 if they cannot be used). */
export function checkPicked(batch: readonly SequenceInput[], rowsBefore: number): void {
  for (const { inputs } of batch) {
    if (inputs.kind !== 'picked') continue;
    for (const row of inputs.rows) {
      if (row < rowsBefore) continue;
      throw new InvalidInput(
        `An input is the token picked at row ${row}, but the batch before picked ${rowsBefore} tokens.`,
      );
    }
  }
}

/** The adapter of a batch. Throws {@link InvalidInput} when its sequences have different ones. */
export function batchAdapter(batch: readonly SequenceInput[]): DeviceAdapter | undefined {
  const adapter = batch[0]?.adapter;
  if (batch.every((sequence) => sequence.adapter === adapter)) return adapter;
  throw new InvalidInput('The sequences of a batch have different adapters.');
}

/** Words of one row of {@link TopRequest.allowed}. */
export function allowedWords(config: ModelConfig): number {
  return Math.ceil(config.vocabularySize / 32);
}

/** Throws {@link InvalidInput} when slots cannot be copied pairwise. */
export function checkCopy(
  slotCount: number,
  sources: Uint32Array,
  destinations: Uint32Array,
  shifts: Int32Array | undefined,
): void {
  if (sources.length !== destinations.length) {
    throw new InvalidInput(`${sources.length} slots to read for ${destinations.length} to write.`);
  }
  if (shifts !== undefined && shifts.length !== sources.length) {
    throw new InvalidInput(`${shifts.length} shifts for ${sources.length} slots.`);
  }
  checkSlots(slotCount, sources);
  checkSlots(slotCount, destinations);
}

/** Throws {@link InvalidInput} when states do not fit the model or are not finite. */
export function checkStates(config: ModelConfig, states: Float32Array, count: number): void {
  if (states.length !== count * config.hiddenSize) {
    throw new InvalidInput(`${states.length} values for ${count} states of ${config.hiddenSize}.`);
  }
  checkFinite(states, config.hiddenSize, 'State');
}

/** Throws {@link InvalidInput} when {@link checkStates} refuses the states, or when there is not one list of tokens per state. */
export function checkScore(
  config: ModelConfig,
  states: Float32Array,
  count: number,
  tokens: readonly Uint32Array[],
): void {
  checkStates(config, states, count);
  if (tokens.length !== count) throw new InvalidInput(`${tokens.length} lists of tokens for ${count} states.`);
  for (const list of tokens) checkTokens(config, list);
}

/** Throws {@link InvalidInput} when the pool has no such page, or when the number of bytes is not that of one page. */
export function checkPage(pageCount: number, pageBytes: number, page: number, bytes: Uint8Array): void {
  if (!Number.isInteger(page) || page < 0 || page >= pageCount) {
    throw new InvalidInput(`Page ${page} is outside the pool of ${pageCount}.`);
  }
  if (bytes.length !== pageBytes) throw new InvalidInput(`${bytes.length} bytes for a page of ${pageBytes}.`);
}

/** Throws {@link InvalidInput} unless each image has as many bytes as the tower takes. */
export function checkImages({ imageSize }: VisionConfig, images: readonly Uint8Array[]): void {
  const bytes = 3 * imageSize * imageSize;
  for (const { length } of images)
    if (length !== bytes) throw new InvalidInput(`${length} bytes for an image of ${bytes}.`);
}

function checkTop(config: ModelConfig, { rows, topK, allowed, draws, changes }: TopRequest): void {
  if (topK < 1) throw new InvalidInput('topK must be at least 1.');
  if (changes !== undefined && (rows !== 1 || changes.tokens.length !== changes.values.length))
    throw new InvalidInput(`${changes.values.length} changes of ${changes.tokens.length} logits for ${rows} rows.`);
  if (draws !== undefined && draws.length !== rows) throw new InvalidInput(`${draws.length} draws for ${rows} rows.`);
  if (allowed === undefined) return;
  const words = rows * allowedWords(config);
  if (allowed.length !== words) throw new InvalidInput(`${allowed.length} words for a token mask of ${words}.`);
}

function checkTokens(config: ModelConfig, tokens: Uint32Array): void {
  for (const token of tokens) {
    if (token >= config.vocabularySize) throw new InvalidInput(`Token ${token} is outside the vocabulary.`);
  }
}

function checkFinite(values: Float32Array, rowSize: number, label: string): void {
  for (let i = 0; i < values.length; i++) {
    if (Number.isFinite(values[i])) continue;
    throw new InvalidInput(`${label} ${Math.floor(i / rowSize)} holds ${values[i]}.`);
  }
}

function checkSlots(slotCount: number, slots: Uint32Array): void {
  for (let i = 0; i < slots.length; i++) {
    if (slots[i] >= slotCount) throw new InvalidInput(`Slot ${slots[i]} is outside the pool of ${slotCount}.`);
  }
}
