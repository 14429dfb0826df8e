import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { SequenceInput } from './backend.ts';

/**
 * Throws a `RangeError` when a sequence does not fit the model or the pool. Handlers check what inferlets ask for; this is the last line
 * of defence, because a bad slot would silently write over another inferlet's keys. Masks' values are not looked at.
 */
export function checkSequence(config: ModelConfig, slotCount: number, sequence: SequenceInput): void {
  const { inputs, positions, context, mask, writes, output } = sequence;
  const n = positions.length;
  if (n === 0) throw new RangeError('A sequence needs at least one input.');
  if (inputs.kind === 'tokens') {
    if (inputs.tokens.length !== n) throw new RangeError(`${inputs.tokens.length} tokens for ${n} positions.`);
    for (const token of inputs.tokens) {
      if (token >= config.vocabularySize) throw new RangeError(`Token ${token} is outside the vocabulary.`);
    }
  } else if (inputs.embeds.length !== n * config.hiddenSize) {
    throw new RangeError(`${inputs.embeds.length} embed values for ${n} positions of ${config.hiddenSize}.`);
  }
  if (mask !== 'causal' && mask.length !== n * (context.length + n)) {
    throw new RangeError(`A mask of ${mask.length} values for ${n} inputs over ${context.length} slots.`);
  }
  if (writes.length !== 0 && writes.length !== n) throw new RangeError(`${writes.length} slots for ${n} inputs.`);
  checkSlots(slotCount, context);
  checkSlots(slotCount, writes);
  if (output.kind === 'none') return;
  if (output.rows < 1 || output.rows > n) throw new RangeError(`${output.rows} output rows of ${n} inputs.`);
  if (output.kind === 'top' && output.topK < 1) throw new RangeError('topK must be at least 1.');
}

/** Throws a `RangeError` when slots cannot be copied pairwise. */
export function checkCopy(slotCount: number, sources: Uint32Array, destinations: Uint32Array): void {
  if (sources.length !== destinations.length) {
    throw new RangeError(`${sources.length} slots to read for ${destinations.length} to write.`);
  }
  checkSlots(slotCount, sources);
  checkSlots(slotCount, destinations);
}

/** Throws a `RangeError` when states do not fit the model. */
export function checkStates(config: ModelConfig, states: Float32Array, count: number): void {
  if (states.length !== count * config.hiddenSize) {
    throw new RangeError(`${states.length} values for ${count} states of ${config.hiddenSize}.`);
  }
}

function checkSlots(slotCount: number, slots: Uint32Array): void {
  for (let i = 0; i < slots.length; i++) {
    if (slots[i] >= slotCount) throw new RangeError(`Slot ${slots[i]} is outside the pool of ${slotCount}.`);
  }
}
