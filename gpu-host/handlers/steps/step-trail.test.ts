import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { StepRequest } from '../../protocol/calls.ts';
import { GREEDY, NONE } from '../../testing/host.ts';
import { continuesStep, StepTrail } from './step-trail.ts';

const PAGES = Uint32Array.of(1, 2);

function stepAt(position: number, token: number, changes: Partial<StepRequest> = {}): StepRequest {
  return {
    tokens: Uint32Array.of(token),
    positions: Uint32Array.of(position),
    inPages: PAGES,
    outPages: PAGES,
    mask: undefined,
    rows: 1,
    output: { tag: 'sample', val: GREEDY },
    ...changes,
  };
}

/** Positions at which steps are guessed in a trail of `steps` steps of token 7, when every guess is in vain. */
function guessesInVain(steps: number): number[] {
  const trail = new StepTrail();
  const guessedAt: number[] = [];
  for (let position = 0; position < steps; position++) {
    if (trail.isSteady) {
      guessedAt.push(position);
      trail.noteGuess(false);
    }
    trail.noteStep(stepAt(position, 7), 7);
  }
  return guessedAt;
}

describe('continuesStep', () => {
  it('is true for a step that takes the last token at the next position, with the same sampler', () => {
    const prompt = stepAt(0, 0, { tokens: Uint32Array.of(1, 2, 3), positions: Uint32Array.of(0, 1, 2) });
    assert.ok(continuesStep(prompt, 9, stepAt(3, 9)));
    assert.ok(continuesStep(stepAt(3, 9), 5, stepAt(4, 5, { inPages: NONE, outPages: NONE })));
  });

  it('is false when any part of the step differs', () => {
    const last = stepAt(3, 9);
    const others: Record<string, StepRequest> = {
      token: stepAt(4, 6),
      position: stepAt(5, 5),
      inputs: stepAt(4, 5, { tokens: Uint32Array.of(5, 5), positions: Uint32Array.of(4, 5) }),
      sampler: stepAt(4, 5, { output: { tag: 'sample', val: { ...GREEDY, seed: 1 } } }),
      output: stepAt(4, 5, { output: { tag: 'distributions', val: 3 } }),
      rows: stepAt(4, 5, { rows: 0 }),
      mask: stepAt(4, 5, { mask: { rowLengths: NONE, runs: NONE } }),
      allowed: stepAt(4, 5, { allowed: NONE }),
      adapter: stepAt(4, 5, { adapter: 'tone' }),
    };
    for (const [what, other] of Object.entries(others)) assert.equal(continuesStep(last, 5, other), false, what);
  });
});

describe('StepTrail', () => {
  it('is steady after two steps that each continued the previous one', () => {
    const trail = new StepTrail();
    const steady = [0, 1, 2, 3].map((position) => {
      trail.noteStep(stepAt(position, 7), 7);
      return trail.isSteady;
    });
    assert.deepEqual(steady, [false, false, true, true]);
    trail.noteStep(stepAt(9, 7), 7);
    assert.equal(trail.isSteady, false, 'a jump');
    trail.noteStep(stepAt(10, 7), undefined);
    trail.noteStep(stepAt(11, 7), 7);
    assert.equal(trail.isSteady, false, 'a step without a token');
  });

  it('is steady again at once after one guess in vain, and after more steps for each further one in a row', () => {
    // The distances are 1, 2, 6 and then 14 steps.
    assert.deepEqual(guessesInVain(60), [3, 4, 6, 12, 26, 40, 54]);
  });

  it('keeps none of the lists of a request, which may be long', () => {
    const trail = new StepTrail();
    for (let position = 0; position < 3; position++) {
      const step = stepAt(position, 7);
      trail.noteStep(step, 7);
      step.positions.fill(99);
    }
    assert.ok(trail.isSteady);
  });

  it('forgets guesses in vain after a right one', () => {
    const trail = new StepTrail();
    for (let position = 0; position < 3; position++) trail.noteStep(stepAt(position, 7), 7);
    for (let i = 0; i < 3; i++) trail.noteGuess(false);
    assert.equal(trail.isSteady, false);
    for (let position = 3; !trail.isSteady; position++) trail.noteStep(stepAt(position, 7), 7);
    trail.noteGuess(true);
    trail.noteGuess(false);
    assert.ok(trail.isSteady);
  });
});
