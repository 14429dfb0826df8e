import type { Sampler, StepRequest } from '../protocol/calls.ts';

/** Steps in a row that must have continued each other before the next one is guessed. */
const STEADY_STEPS = 2;
/** Guesses in vain in a row after which the number of steps until the next guess, then 14, grows no further. */
const MAX_VAIN_COUNT = 4;

/**
 * Counts how many of a queue's steps in a row continued the one before: how likely a guess of the next one is right. One guess in vain changes
 * nothing, because a quick inferlet may be late once. After that, each one in vain about doubles the steps until the next guess.
 */
export class StepTrail {
  #last: { readonly step: LastStep; readonly token: number } | undefined;
  #count = 0;
  /** Guesses in vain since the last right one. */
  #vainCount = 0;

  /** True when the next step will probably continue the last one. */
  get isSteady(): boolean {
    return this.#count >= STEADY_STEPS;
  }

  /** Records a step that has ended, and the token that it gave; undefined if it gave anything but one token. */
  noteStep(request: StepRequest, token: number | undefined): void {
    const continued = this.#last !== undefined && continuesStep(this.#last.step, this.#last.token, request);
    this.#count = continued ? this.#count + 1 : Math.min(this.#count, 0);
    // Not the request itself: its lists may be long, and no limit counts them any more.
    const step = { positions: request.positions.slice(-1), output: request.output };
    this.#last = token === undefined ? undefined : { step, token };
  }

  /** Records whether a guess was worth its time. */
  noteGuess(isRight: boolean): void {
    this.#vainCount = isRight ? 0 : Math.min(this.#vainCount + 1, MAX_VAIN_COUNT);
    if (!isRight) this.#count = STEADY_STEPS - (2 ** this.#vainCount - 2);
  }
}

/** The part of a step's request that `continuesStep` compares with the next one's. */
type LastStep = Pick<StepRequest, 'positions' | 'output'>;

/** True for a request that has nothing which its inferlet chooses anew for each token: one token in, and one sampled from all tokens. */
export function isPlainStep({ tokens, positions, mask, allowed, adapter, rows, output }: StepRequest): boolean {
  const isBare = mask === undefined && allowed === undefined && adapter === undefined;
  return isBare && tokens.length === 1 && positions.length === 1 && rows === 1 && output.tag === 'sample';
}

/** True when `next` is the step that follows `last`, which gave `token`: with that token, at the next position, with the same sampler. */
export function continuesStep(last: LastStep, token: number, next: StepRequest): boolean {
  if (!isPlainStep(next) || next.tokens[0] !== token) return false;
  const { output, positions } = last;
  if (next.positions[0] !== (positions.at(-1) ?? Number.NaN) + 1) return false;
  return output.tag === 'sample' && next.output.tag === 'sample' && isSameSampler(output.val, next.output.val);
}

function isSameSampler(a: Sampler, b: Sampler): boolean {
  return (
    a.temperature === b.temperature && a.topK === b.topK && a.topP === b.topP && a.minP === b.minP && a.seed === b.seed
  );
}
