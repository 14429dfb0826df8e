import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { seeded } from '../../../../test/harness/random.ts';
import { TextEngine } from '../../testing/text-engine.ts';
import type { Variable } from './builder.ts';
import { choice, gen, type ProgramBody, programOn, type State } from './program.ts';

const PROGRAMS = process.env.PIE_TEST_ALL ? 3000 : 60;

/** A random program over states that fork, join, branch and repeat, the same for the same seed. */
function randomProgram(seed: number): ProgramBody<{ topic: string }> {
  return (session) => {
    const below = seeded(seed);
    const pick = <T>(list: readonly T[]): T => list[below(list.length)] as T;
    const value = (known: readonly Variable[]) =>
      known.length > 0 && below(2) === 0 ? pick(known) : `word${below(9)}`;
    const made = (state: State, text: string, variable: Variable, known: Variable[]) => {
      state.add`${text}${variable}\n`;
      known.push(variable);
      return variable;
    };
    /** Adds one operation to a state. A branch gets a copy of `known`, because only the branch itself can use the values that it makes. */
    const step = (state: State, known: Variable[], depth: number): void => {
      switch (below(depth > 0 ? 6 : 3)) {
        case 0:
          state.add`A text that is long enough for a device call of its own. ${value(known)} `;
          return;
        case 1:
          made(state, 'Next:', gen({ maxTokens: 1 + below(6) }), known);
          return;
        case 2:
          made(state, 'Sure?', choice(['yes', 'no', 'maybe']), known);
          return;
        case 3: {
          const asked = made(state, 'Ask:', gen({ maxTokens: 2 }), known);
          const parity = below(2);
          const branch = (inner: State) => step(inner, [...known], depth - 1);
          state.when(asked, (text) => text.length % 2 === parity, branch, below(2) === 0 ? branch : undefined);
          return;
        }
        case 4: {
          const round = (inner: State) => made(inner.add`Again ${value(known)}`, ':', gen({ maxTokens: 3 }), []);
          state.loop(1 + below(3), round, (text) => text.includes('.'));
          return;
        }
        default: {
          const fork = state.fork();
          step(fork, known, 0);
          if (below(2) === 0) state.append(fork);
        }
      }
    };
    const states = [session.state().add`Start ${session.argument('topic')}. `];
    const known: Variable[] = [];
    /** Continues some of the states, one perhaps twice, chosen by the generated texts. */
    const picked = (count: number, by: number) => {
      const { length } = states;
      const places = (texts: readonly string[]) =>
        Array.from({ length: count }, (_, i) => (texts.join('').length + i * by) % length);
      states.splice(0, length, ...session.pick('picked', states, count, known, places));
    };
    for (let steps = 2 + below(6); steps > 0; steps--) {
      const action = below(8);
      if (action < 2) states.push(pick(states).fork());
      else if (action === 2) picked(1 + below(states.length + 1), below(5));
      else step(pick(states), known, 2);
    }
    const ends = states.map((state) => made(state, 'End:', gen({ maxTokens: 3 }), []));
    return { known, ends, first: known[0] ?? ends[0] };
  };
}

describe('random programs', () => {
  it('give the same results interpreted and traced, with and without passes, and leave no context', async () => {
    for (let seed = 0; seed < PROGRAMS; seed++) {
      const results: unknown[] = [];
      for (const options of [{ interpret: true }, { passes: [] }, {}]) {
        const engine = new TextEngine(seed + results.length);
        const tell = (text: string) => assert.fail(`seed ${seed}: ${text}`);
        results.push(await programOn(engine, tell, 'random', randomProgram(seed)).run({ topic: 'cats' }, options));
        assert.equal(engine.live.size, 0, `seed ${seed}: contexts are left`);
      }
      const [interpreted, ...traced] = results;
      for (const each of traced) assert.deepEqual(each, interpreted, `seed ${seed}`);
    }
  });
});
