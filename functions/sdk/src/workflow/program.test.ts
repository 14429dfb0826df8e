import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TextEngine } from '../../testing/text-engine.ts';
import type { Variable } from './builder.ts';
import { execute } from './execute.ts';
import { optimise } from './passes.ts';
import { choice, gen, type Program, type ProgramBody, programOn, type Session, type State } from './program.ts';

const DIMENSIONS = ['clear', 'exact', 'kind'];

/** SGLang's judge: forks that judge one essay in one dimension each, and a verdict from their judgments. */
const judge: ProgramBody<string> = (session, essay) => {
  const text = session.state().add`Judge this essay. ${essay}\n`;
  const views = DIMENSIONS.map((dimension) => {
    const view = gen({ maxTokens: 6 });
    text.fork().add`Is it ${dimension}? ${view}`;
    return view;
  });
  for (const [i, view] of views.entries()) text.add`${DIMENSIONS[i] ?? ''}: ${view}\n`;
  const [summary, grade] = [gen({ maxTokens: 8 }), choice([' A', ' B', ' C'])];
  text.add`In short: ${summary} Grade:${grade}`;
  return { views, summary, grade };
};

/** A conversation whose turns depend on the generated texts. */
const turns: ProgramBody<string> = (session, start) => {
  const state = session.state().add`${start}`;
  const [first, last] = [gen({ maxTokens: 5 }), gen({ maxTokens: 4 })];
  state.add` Then ${first}`;
  const louder = session.call('louder', [first], 'text', ([text = '']) => text.toUpperCase());
  const isLong = (text: string) => text.length > 18;
  state.when(
    first,
    isLong,
    (then) => then.add`long: ${gen({ maxTokens: 3 })}${louder}`,
    (other) => other.add`short`,
  );
  const round = (body: typeof state) => {
    const more = gen({ maxTokens: 2 });
    body.add`more: ${more}`;
    return more;
  };
  state.loop(4, round, (text) => text.includes('.'));
  state.add`. So ${last}`;
  return { first, louder, last };
};

/** A program whose own code depends on a generated value. */
const looks: ProgramBody<string> = async (session, start) => {
  const state = session.state();
  const answer = gen({ maxTokens: 3 });
  state.add`${start}${answer}`;
  const said = await session.read(answer);
  const more = gen({ maxTokens: said.length > 8 ? 2 : 1 });
  state.add`${more}`;
  return { answer, more, said, again: `${answer}` };
};

const on = (body: ProgramBody<string>, logged: string[] = [], engine = new TextEngine()): Program<string> =>
  programOn(engine, (text) => logged.push(text), 'program', body);

/** Generates three continuations, and then continues the longest one twice and the second longest once. */
const best: ProgramBody<string> = (session, start) => {
  const root = session.state().add`${start}`;
  const words = [3, 5, 2].map((maxTokens) => gen({ maxTokens }));
  const continuations = words.map((word) => root.fork().add`:${word}.`);
  const places = (texts: readonly string[]) => {
    const order = texts.map((_, i) => i).sort((a, b) => (texts[b]?.length ?? 0) - (texts[a]?.length ?? 0));
    return [order[0] ?? 0, order[1] ?? 0, order[0] ?? 0, order[2] ?? 0];
  };
  const picked = session.pick('longest', continuations, 3, words, places);
  const ends = picked.map((state, i) => {
    const end = gen({ maxTokens: 2 });
    state.add` End ${i}:${end}`;
    return end;
  });
  return { words, ends };
};

describe('program', () => {
  it('continues with the states that a pick chooses by generated values, and forks a state that is picked twice', async () => {
    const engine = new TextEngine();
    const graph = await on(best).graph('A cat');
    const ended: string[] = [];
    const fork = engine.fork.bind(engine);
    let forks = 0;
    engine.fork = (context, signal) => {
      forks++;
      return fork(context, signal);
    };
    const run = engine.run.bind(engine);
    engine.run = async (node, inputs, around) => {
      const made = await run(node, inputs, around);
      const { context } = made as { readonly context?: { readonly text: string } };
      if (context && node.operation.kind === 'decoding') ended.push(context.text);
      return made;
    };
    const { words, ends } = (await execute(graph, { engine })) as { words: string[]; ends: string[] };
    const [first, second] = words.toSorted((a, b) => b.length - a.length);
    const wanted = [first, second, first].map((word, i) => `A cat:${word}. End ${i}:${ends[i]}`);
    // The first three generations are the words.
    assert.deepEqual(ended.slice(3).sort(), wanted.sort());
    // Two forks for the three continuations, since the last one takes over the context, and one for the state that is picked twice.
    assert.equal(forks, 3);
    assert.equal(engine.live.size, 0);
  });

  it('refuses an index without a state, a state that has ended, and a pick from no states', async () => {
    const picks =
      (use: (session: Session, states: State[]) => void): ProgramBody<string> =>
      (session) => {
        const word = gen({ maxTokens: 1 });
        const states = [session.state().add`a${word}`, session.state().add`b`];
        use(session, states);
        return { word };
      };
    const place = (at: number) =>
      picks(
        (session, states) => void session.pick('one', states, 3, [], () => [0, 0, at]).map((state) => state.add`c`),
      );
    for (const at of [2, -1, 0.5, Number.NaN]) {
      for (const interpret of [false, true]) {
        const engine = new TextEngine();
        await assert.rejects(
          on(place(at), [], engine).run('', { interpret }),
          /"program\/pick" must give a place below 2 for "context2"/,
        );
        assert.equal(engine.live.size, 0);
      }
    }
    const later = picks((session, states) => {
      session.pick('one', states, 1, [], () => [0]);
      for (const state of states) state.add`d`;
    });
    const forked = picks((session, states) => {
      session.pick('one', states, 1, [], () => [0]);
      states[0]?.fork();
    });
    const appended = picks((_session, states) => {
      const [one, other] = states as [State, State];
      one.append(other);
      other.add`d`;
    });
    for (const body of [later, forked, appended]) {
      for (const interpret of [false, true])
        await assert.rejects(on(body).run('', { interpret }), /This state has ended/);
    }
    const none = picks((session) => void session.pick('one', [], 1, [], () => [0]));
    await assert.rejects(on(none).run(''), /no state to pick from/);
    const zero = picks((session, states) => void session.pick('one', states, 0, [], () => []));
    await assert.rejects(on(zero).run(''), /count must be a whole number, 1 or more, not 0/);
  });

  it('gives the same text traced, with and without passes, and interpreted', async () => {
    for (const body of [judge, turns, best]) {
      for (const input of ['Once upon a time.', 'The dog ran.', 'A cat', '', 'x', 'My essay']) {
        const told: string[] = [];
        const engine = new TextEngine(input.length);
        const app = on(body, told, engine);
        const traced = await app.run(input);
        assert.deepEqual(traced, await app.run(input, { passes: [] }));
        assert.deepEqual(traced, await app.run(input, { interpret: true }));
        assert.deepEqual(told, []);
        assert.equal(engine.live.size, 0);
      }
    }
  });

  it('reports its nodes to the engine when it is interpreted, too', async () => {
    const reported = async (body: ProgramBody<string>) => {
      const engine = new TextEngine();
      await on(body, [], engine)
        .run('A cat', { interpret: true })
        .catch(() => undefined);
      return engine;
    };
    const ended = await reported(turns);
    assert.ok(ended.ran.length > 0);
    for (const id of ended.ran) assert.ok(ended.reported.includes(id), id);
    const failing = await reported((session) => {
      const text = gen({ maxTokens: 2 });
      session.state().add`Once${text}`;
      return { made: session.call('fails', [text], 'text', () => Promise.reject(new Error('on purpose'))) };
    });
    assert.deepEqual(
      failing.reported.filter((id) => id.endsWith('!')),
      ['program/fails!'],
    );
  });

  it('runs no more nodes on the engine when traced than when interpreted', async () => {
    const judged: ProgramBody<{ essay: string; dimensions: readonly string[] }> = (session) => {
      const text = session.state().add`Judge this essay. ${session.argument('essay')}\n`;
      const views = session.list('dimensions').map((dimension) => {
        const view = gen({ maxTokens: 6 });
        text.fork().add`Is it ${dimension}? ${view}`;
        return { dimension, view };
      });
      for (const { dimension, view } of views) text.add`${dimension}: ${view}\n`;
      text.add`Grade:${choice([' A', ' B'])}`;
      return { views: views.map(({ view }) => view) };
    };
    const asked = async <I>(body: ProgramBody<I>, input: I, interpret: boolean) => {
      const engine = new TextEngine();
      const results = await programOn(engine, () => undefined, 'asked', body).run(input, { interpret });
      return { results, times: engine.ran.length };
    };
    const input = { essay: 'The dog ran.', dimensions: DIMENSIONS };
    const [traced, interpreted] = [await asked(judged, input, false), await asked(judged, input, true)];
    assert.deepEqual(traced.results, interpreted.results);
    assert.ok(traced.times <= interpreted.times, `${traced.times} and ${interpreted.times}`);
  });

  it('runs the forks of a traced program at the same time', async () => {
    const graph = await on(judge).graph('An essay');
    let [running, most] = [0, 0];
    const onNode = ({ node, what }: { node: { operation: { kind: string } }; what: string }) => {
      if (node.operation.kind !== 'decoding') return;
      running += what === 'started' ? 1 : -1;
      most = Math.max(most, running);
    };
    await execute(optimise(graph), { engine: new TextEngine(), onNode });
    assert.equal(most, DIMENSIONS.length);
  });

  it('interprets a program that reads a value, and logs the place of the read', async () => {
    const told: string[] = [];
    const app = on(looks, told);
    const { answer, more, said, again } = await app.run('Once');
    assert.ok(typeof answer === 'string' && answer.length > 0 && typeof more === 'string');
    assert.equal(said, answer);
    assert.equal(again, answer);
    assert.equal(told.length, 1);
    assert.match(
      told[0] ?? '',
      /^The program "program" is interpreted: The program reads a value .* at .*looks \(.*program\.test\.ts:\d+/,
    );
  });

  it('refuses to turn a value into a string outside of a template, with the place', async () => {
    const misuses: readonly ((value: ReturnType<typeof gen>) => unknown)[] = [
      function concatenates(value) {
        return `${value}!`;
      },
      function compares(value) {
        return (value as unknown as number) > 3;
      },
      function writes(value) {
        return JSON.stringify({ value });
      },
    ];
    for (const misuse of misuses) {
      const told: string[] = [];
      const app = on((session) => {
        const value = gen({ maxTokens: 2 });
        session.state().add`Once ${value}`;
        return { misused: misuse(value) };
      }, told);
      // The interpreted program fails, too, because it did not wait for the value.
      await assert.rejects(app.run(''), { code: 'unsupported' });
      assert.match(
        told[0] ?? '',
        new RegExp(`outside of a template: use .* at (Object\\.)?${misuse.name} \\(.*program\\.test\\.ts:\\d+`),
      );
    }
  });

  it('interprets a program even if it catches the error of a read', async () => {
    const reads: ProgramBody<string> = async (session, start) => {
      const [answer, more] = [gen({ maxTokens: 3 }), gen({ maxTokens: 2 })];
      const state = session.state().add`${start}${answer}`;
      const said = await session.read(answer).catch(() => undefined);
      state.add`${(said as string).length}${more}`;
      return { said, more };
    };
    const converts: ProgramBody<string> = async (session, start) => {
      const [answer, more] = [gen({ maxTokens: 3 }), gen({ maxTokens: 2 })];
      const state = session.state().add`${start}${answer}`;
      let said = 'nothing';
      try {
        said = String(answer);
      } catch {
        said = (await session.read(answer)).slice(0, 2);
      }
      return {
        said,
        more: session.call('more', [answer], 'text', ([text = '']) => text + said),
        state: !!state.add`${more}`,
      };
    };
    const goesOn: ProgramBody<string> = async (session, start) => {
      const answer = gen({ maxTokens: 3 });
      session.state().add`${start}${answer}`;
      return { said: await session.read(answer).catch(() => 'nothing') };
    };
    for (const body of [reads, converts, goesOn]) {
      const told: string[] = [];
      const app = on(body, told);
      const traced = await app.run('Once');
      assert.deepEqual(traced, await app.run('Once', { interpret: true }));
      assert.equal(told.length, 1);
    }
  });

  it('refuses a value of another run', async () => {
    const shared = gen({ maxTokens: 2 });
    const app = on(function holding(session, start) {
      const other = gen({ maxTokens: 1 });
      session.state().add`${start}${shared}`.add`So ${shared}${other}`;
      return { shared, other };
    });
    await app.run('Once');
    for (const options of [{}, { interpret: true }]) {
      await assert.rejects(
        app.run('Twice', options),
        /A value of another run .* at .*holding \(.*program\.test\.ts:\d+/,
      );
    }
  });

  it('refuses a value of an untaken branch, or of a round of a loop, outside of that branch or loop', async () => {
    const outside = (leave: (state: State, asked: Variable) => Variable) =>
      on((session, start) => {
        const [asked, last] = [gen({ maxTokens: 2 }), gen({ maxTokens: 1 })];
        const state = session.state().add`${start}${asked}`;
        return { last: state.add`${leave(state, asked)}${last}` && last };
      });
    const inner = gen({ maxTokens: 1 });
    const branch = outside((state, asked) => {
      state.when(
        asked,
        () => false,
        (then) => then.add`${inner}`,
      );
      return inner;
    });
    await assert.rejects(branch.run('Once', { interpret: true }), /has no value here: only the branch or the loop/);
    const round = gen({ maxTokens: 1 });
    const loop = outside((state) => {
      state.loop(
        2,
        (body) => {
          body.add`${round}`;
          return round;
        },
        () => true,
      );
      return round;
    });
    await assert.rejects(loop.run('Once', { interpret: true }), /has no value here: only the branch or the loop/);
  });

  it('refuses a value of a round of one loop in another loop', async () => {
    const app = on((session, start) => {
      const [round, more] = [gen({ maxTokens: 1 }), gen({ maxTokens: 2 })];
      const state = session.state().add`${start}`;
      const loop = (body: (state: State) => Variable) => state.loop(2, body, () => true);
      loop((body) => body.add`${round}` && round);
      loop((body) => body.add`${more}${round}` && more);
      const last = gen({ maxTokens: 1 });
      state.add`${last}`;
      return { last };
    });
    await assert.rejects(app.run('Once'), /there is no node "program\/loop\/decoding"/);
    await assert.rejects(app.run('Once', { interpret: true }), /has no value here: only the branch or the loop/);
  });

  it('refuses a value that no template holds', async () => {
    const app = on(() => ({ lost: gen() }));
    await assert.rejects(app.run(''), /A value is used.* before a template holds it/);
  });
});
