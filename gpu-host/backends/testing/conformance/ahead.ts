import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OutputRequest, SequenceInput, SequenceOutput } from '../../backend.ts';
import { InvalidInput } from '../../check.ts';
import { range, run, values, wholeVocabulary } from '../scenario.ts';
import { topic } from './topic.ts';

/** Backends that take steps ahead: they accept a `forward` before the previous one has ended. */
const AHEAD = /^(reference|cuda)/;
const STEPS = 10;
const SLOTS_PER_SEQUENCE = STEPS + 2;

/** The token that the first row of an output picks. */
function pickedOf(output: SequenceOutput): number {
  assert.ok(output.kind === 'top');
  return (output.drawn ?? output.tokens)[0]!;
}

/** A forward may start before the previous one has ended, and take the tokens that the previous one picks. */
export const ahead = topic('steps ahead', (subject) => {
  const { random, make } = subject;

  /** Output requests of three sequences; the last one asks for all tokens' probabilities, so that any difference shows. */
  const outputRequestOf = (sequence: number, position: number): OutputRequest => {
    if (sequence === 0) return { kind: 'top', rows: 1, topK: 1, tokensOnly: true };
    if (sequence === 2) return { ...wholeVocabulary(subject.model.config), states: position % 2 === 0 };
    return {
      kind: 'top',
      rows: 1,
      topK: 20,
      draws: [{ temperature: Math.fround(1.3), topK: 20, topP: Math.fround(0.95), minP: 0, seed: 7, position }],
    };
  };
  /** The order of the sequences changes at every step, so that no sequence keeps its row. */
  const orderAt = (step: number): readonly number[] => [0, 1, 2].map((i) => (i + step) % 3);
  const decode = (sequence: number, step: number, inputs: SequenceInput['inputs']): SequenceInput => ({
    ...make(Uint32Array.of(0)),
    inputs,
    positions: Uint32Array.of(step),
    context: range(sequence * SLOTS_PER_SEQUENCE, sequence * SLOTS_PER_SEQUENCE + step),
    writes: Uint32Array.of(sequence * SLOTS_PER_SEQUENCE + step),
    output: outputRequestOf(sequence, step),
  });

  async function oneByOne(): Promise<{ batch: readonly SequenceInput[]; outputs: readonly SequenceOutput[] }[]> {
    const all: { batch: readonly SequenceInput[]; outputs: readonly SequenceOutput[] }[] = [];
    const next = [3, 3, 3];
    for (let step = 0; step < STEPS; step++) {
      const batch = orderAt(step).map((sequence) =>
        decode(sequence, step, { kind: 'tokens', tokens: Uint32Array.of(next[sequence]!) }),
      );
      const outputs = await subject.backend.forward(batch);
      all.push({ batch, outputs });
      for (const [i, sequence] of orderAt(step).entries()) next[sequence] = pickedOf(outputs[i]!);
    }
    return all;
  }

  const isAhead = AHEAD.test(subject.name);
  const skip = !isAhead && 'this backend takes one step at a time';

  test('the backend says whether it takes steps ahead', () => {
    assert.equal(subject.backend.ahead === true, isAhead);
  });

  test('a chain of steps computes the same as the steps one by one', { skip }, async () => {
    const expected = await oneByOne();
    const steps: Promise<readonly SequenceOutput[]>[] = [];
    for (let step = 0; step < STEPS; step++) {
      const batch = orderAt(step).map((sequence) => {
        if (step === 0) return decode(sequence, step, { kind: 'tokens', tokens: Uint32Array.of(3) });
        return decode(sequence, step, { kind: 'picked', rows: Uint32Array.of(orderAt(step - 1).indexOf(sequence)) });
      });
      // Run at most two forwards at once.
      if (step > 1) await steps[step - 2];
      steps.push(subject.backend.forward(batch));
    }
    for (const [step, outputs] of (await Promise.all(steps)).entries()) {
      assert.equal(outputs.length, expected[step]!.outputs.length);
      for (const [i, output] of outputs.entries()) {
        const { outputs: expectedOutputs } = expected[step]!;
        assert.equal(pickedOf(output), pickedOf(expectedOutputs[i]!));
        if (orderAt(step)[i] === 2) assert.deepEqual(values(output), values(expectedOutputs[i]!));
      }
    }
  });

  test('picked inputs index the rows of all `top` outputs of the batch before, in any order and more than once', async () => {
    const prompts = [random.tokens(subject.model.config, 5), random.tokens(subject.model.config, 4)] as const;
    const top = (tokens: Uint32Array, rows: number) =>
      make(tokens, { output: { kind: 'top', rows, topK: 3, tokensOnly: rows === 2 } });
    const before = [
      make(prompts[0], { output: { kind: 'states', rows: 2 } }),
      top(prompts[0], 3),
      make(prompts[1], { output: { kind: 'none' } }),
      top(prompts[1], 2),
    ];
    const [, first, , second] = await subject.backend.forward(before);
    assert.ok(first?.kind === 'top' && second?.kind === 'top');
    // The most probable token of each row. Rows begin at multiples of 3, the `topK`.
    const picked = [...[0, 3, 6].map((i) => first.tokens[i]!), ...[0, 3].map((i) => second.tokens[i]!)];
    const rows = Uint32Array.of(4, 0, 2, 2, 3, 1);
    const follower = { ...make(rows), inputs: { kind: 'picked', rows } } as const;
    if (!isAhead) {
      await assert.rejects(subject.backend.forward([follower]), InvalidInput);
      return;
    }
    const [expected] = await run(subject.backend, make(rows.map((row) => picked[row]!)));
    await subject.backend.forward(before);
    assert.deepEqual((await run(subject.backend, follower))[0], expected, 'the batch before has ended');
    const underWay = subject.backend.forward(before);
    const following = run(subject.backend, follower);
    await underWay;
    assert.deepEqual((await following)[0], expected, 'the batch before is under way');
  });

  const pickedInputs = (...rows: number[]): SequenceInput => ({
    ...make(Uint32Array.from(rows)),
    inputs: { kind: 'picked', rows: Uint32Array.from(rows) },
  });
  const assertRefused = (sequence: SequenceInput) => assert.rejects(subject.backend.forward([sequence]), InvalidInput);

  test('tokens that the batch before does not pick are refused', async () => {
    await run(subject.backend, make(Uint32Array.of(1, 2), { output: { kind: 'states', rows: 2 } }));
    await assertRefused(pickedInputs(0));
    const two = make(Uint32Array.of(1, 2), { output: { kind: 'top', rows: 2, topK: 1 } });
    await subject.backend.forward([two]);
    await assertRefused(pickedInputs(0, 2));
    // The refused batch picked no token either.
    await assertRefused(pickedInputs(0));
    await subject.backend.forward([two]);
    await assertRefused({ ...pickedInputs(0, 1), positions: Uint32Array.of(0) });
  });

  test('tokens that a refused batch did not pick are refused', { skip }, async () => {
    const two = make(Uint32Array.of(1, 2), { output: { kind: 'top', rows: 2, topK: 1 } });
    await subject.backend.forward([two]);
    await subject.backend.forward([pickedInputs(1)]);
    await assert.rejects(subject.backend.forward([make(Uint32Array.of(1_000_000))]), InvalidInput);
    await assertRefused(pickedInputs(0));
  });
});
