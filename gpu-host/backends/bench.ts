import type { Backend, SequenceInput } from './backend.ts';

/** Workload of {@link bareLoop}. */
interface BareLoopOptions {
  /** Sequences per step. */
  readonly batch: number;
  /** Tokens in each sequence's cache before the first step; the cache grows by one token per step. */
  readonly context: number;
  readonly steps: number;
  /** Tokens returned per sequence, with probabilities. By default one token without probabilities, enough for greedy decoding. */
  readonly topK?: number;
}

interface BareLoopResult {
  readonly msPerStep: number;
  readonly tokensPerSecond: number;
  /** Every step's time, in order. */
  readonly stepMs: readonly number[];
  /** The token that each step picked for the first sequence, in order. */
  readonly tokens: readonly number[];
}

/** Maximum tokens of one prefill call, so that a long context does not make one huge step. */
const PREFILL_TOKENS = 256;
/** Decode steps before the measured ones: a backend may spend a sequence's first decode steps on copying its context. */
const SETTLING_STEPS = 8;

/**
 * Decodes greedily without the platform: calls the backend's step back to back and feeds each sequence's next token in again. Benchmarks
 * compare the platform's times for the same batch with this loop. Before the measured steps, the loop fills the cache: the last
 * {@link SETTLING_STEPS} tokens one per step, the others by prefill. It overwrites slots from 0 upwards, so the backend must have no other user.
 * Throws a `RangeError` when the pool is too small.
 */
export async function bareLoop(backend: Backend, options: BareLoopOptions): Promise<BareLoopResult> {
  const { batch, context, steps } = options;
  const perSequence = context + steps;
  if (batch * perSequence > backend.pageCount * backend.pageSize) {
    throw new RangeError(`The pool is too small for ${batch} sequences of ${perSequence} tokens.`);
  }
  const slots = Array.from({ length: batch }, (_, b) =>
    Uint32Array.from({ length: perSequence }, (_, i) => b * perSequence + i),
  );
  const firstToken = backend.config.bosTokenId ?? 0;
  const prefilled = Math.max(0, context - SETTLING_STEPS);
  for (let start = 0; start < prefilled; start += PREFILL_TOKENS) {
    const end = Math.min(prefilled, start + PREFILL_TOKENS);
    for (const sequenceSlots of slots) {
      await backend.forward([prefill(sequenceSlots, start, end, firstToken)]);
    }
  }
  for (let position = prefilled; position < context; position++)
    await backend.forward(slots.map((sequenceSlots) => decode(sequenceSlots, position, firstToken, options.topK)));
  const nextTokens = new Uint32Array(batch).fill(firstToken);
  const stepMs: number[] = [];
  const tokens: number[] = [];
  for (let step = 0; step < steps; step++) {
    const position = context + step;
    const began = performance.now();
    const inputs = slots.map((sequenceSlots, b) => decode(sequenceSlots, position, nextTokens[b], options.topK));
    const outputs = await backend.forward(inputs);
    outputs.forEach((output, b) => {
      if (output.kind === 'top') nextTokens[b] = output.tokens[0];
    });
    stepMs.push(performance.now() - began);
    tokens.push(nextTokens[0] ?? firstToken);
  }
  const msPerStep = stepMs.reduce((sum, ms) => sum + ms, 0) / steps;
  return { msPerStep, tokensPerSecond: (batch * 1000) / msPerStep, stepMs, tokens };
}

function prefill(slots: Uint32Array, start: number, end: number, token: number): SequenceInput {
  return {
    inputs: { kind: 'tokens', tokens: new Uint32Array(end - start).fill(token) },
    positions: Uint32Array.from({ length: end - start }, (_, i) => start + i),
    context: slots.subarray(0, start),
    mask: 'causal',
    writes: slots.subarray(start, end),
    output: { kind: 'none' },
  };
}

function decode(slots: Uint32Array, position: number, token: number, topK: number | undefined): SequenceInput {
  return {
    inputs: { kind: 'tokens', tokens: Uint32Array.of(token) },
    positions: Uint32Array.of(position),
    context: slots.subarray(0, position),
    mask: 'causal',
    writes: slots.subarray(position, position + 1),
    output: topK === undefined ? { kind: 'top', rows: 1, topK: 1, tokensOnly: true } : { kind: 'top', rows: 1, topK },
  };
}
