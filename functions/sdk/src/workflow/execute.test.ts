import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TextEngine } from '../../testing/text-engine.ts';
import { abortable } from '../abort.ts';
import { InferletError } from '../errors.ts';
import { Builder, prompt } from './builder.ts';
import type { NodeRun, NodeValues } from './engine.ts';
import { type ExecuteOptions, execute, type NodeEvent } from './execute.ts';
import type { Graph, Node, Ref } from './graph.ts';

const run = (graph: Graph, options: Partial<ExecuteOptions> = {}) =>
  execute(graph, { engine: new TextEngine(), ...options });

describe('execute', () => {
  it('starts a node as soon as its inputs exist, and runs independent nodes at the same time', async () => {
    const g = new Builder('both');
    const [left, right] = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
    // Each call ends only after the other call has started.
    const one = g.call('one', {}, 'text', () => {
      left.resolve('left');
      return right.promise;
    });
    const other = g.call('other', {}, 'text', () => {
      right.resolve('right');
      return left.promise;
    });
    const both = g.call('both', { one, other }, 'text', (given) => `${given.one} ${given.other}`);
    assert.deepEqual(await run(g.graph({ both: { from: both } })), { both: 'right left' });
  });

  it('runs components one after another in a graph that was not optimised', async () => {
    const g = new Builder('order');
    const events: string[] = [];
    const make = (name: string) => () =>
      g.call(name, {}, 'text', async () => {
        events.push(`${name} starts`);
        await undefined;
        events.push(`${name} ends`);
        return name;
      });
    const results = ['a', 'b', 'c'].map((name) => g.component(name, make(name)));
    const graph = g.graph({ all: { list: results.map((from) => ({ from })) } });
    assert.deepEqual(await run(graph), { all: ['a', 'b', 'c'] });
    assert.deepEqual(events, ['a starts', 'a ends', 'b starts', 'b ends', 'c starts', 'c ends']);
  });

  it('runs no more nodes at once than allowed, and starts those with the longest path to a result first', async () => {
    const g = new Builder('bounded');
    const started: string[] = [];
    let [running, most] = [0, 0];
    const make = (name: string) =>
      g.call(name, {}, 'text', async () => {
        started.push(name);
        most = Math.max(most, ++running);
        for (let i = 0; i < 5; i++) await undefined;
        running--;
        return name;
      });
    const short = [1, 2, 3, 4].map((i) => make(`short${i}`));
    const long = g.generate(prompt`${make('long')}`, { maxTokens: 2 });
    const graph = g.graph({ all: { list: [...short, long].map((from) => ({ from })) } });
    await run(graph, { concurrency: 2 });
    assert.equal(most, 2);
    assert.equal(started[0], 'long');
    await assert.rejects(run(graph, { concurrency: 0 }), /concurrency must be a whole number/);
  });

  it('runs a node again after a failure that may pass, as often as the node allows', async () => {
    for (const [retries, code, failures, expectedAttempts, pauses] of [
      [2, 'unavailable', 2, 3, [100, 200]],
      [7, 'limit-exceeded', 7, 8, [100, 200, 400, 800, 1600, 2000, 2000]],
      [2, 'internal', 2, 3, []],
      [1, 'unavailable', 2, 2, [100]],
      [5, 'invalid-argument', 2, 1, []],
    ] as const) {
      const engine = new TextEngine();
      const g = new Builder('retried');
      let attempts = 0;
      const call = () => {
        attempts++;
        if (attempts <= failures) throw new InferletError(code, 'not now');
        return 'now';
      };
      const graph = g.graph({ text: { from: g.call('late', {}, 'text', call, { retries }) } });
      if (expectedAttempts > failures) assert.deepEqual(await run(graph, { engine }), { text: 'now' });
      else await assert.rejects(run(graph, { engine }), { code });
      assert.deepEqual([attempts, engine.pauses], [expectedAttempts, pauses]);
    }
  });

  it('ends the pause before another attempt when the workflow ends', async () => {
    const controller = new AbortController();
    class Pausing extends TextEngine {
      override pause(_: number, signal: NodeRun['signal']): Promise<void> {
        setImmediate(() => controller.abort());
        return abortable(new Promise(() => undefined), signal);
      }
    }
    const g = new Builder('paused');
    const context = g.prefill('Once');
    let attempts = 0;
    const late = g.call(
      'late',
      {},
      'text',
      () => {
        attempts++;
        throw new InferletError('unavailable', 'not now');
      },
      { retries: 3 },
    );
    const engine = new Pausing();
    const text = g.decode(g.prefill(prompt`${late}`, { context })).text;
    const running = run(g.graph({ text: { from: text } }), { engine, signal: controller.signal });
    await assert.rejects(running, { code: 'cancelled' });
    await new Promise(setImmediate);
    assert.deepEqual([attempts, engine.live.size], [1, 0]);
  });

  it('does not run a node again when the client has a part of its text', async () => {
    class Failing extends TextEngine {
      attempts = 0;

      override async run(node: Node, inputs: NodeValues, around: NodeRun): Promise<NodeValues> {
        if (node.operation.kind !== 'decoding') return super.run(node, inputs, around);
        if (++this.attempts === 2) around.forbidRetry();
        throw new InferletError('unavailable', 'not now');
      }
    }
    const g = new Builder('piped');
    const { text } = g.decode(g.prefill('Once'), { pipe: true, retries: 5 });
    const engine = new Failing();
    await assert.rejects(run(g.graph({ text: { from: text } }), { engine }), { code: 'unavailable' });
    assert.deepEqual([engine.attempts, engine.live.size], [2, 0]);
  });

  it('frees the other forks of a list when one of them fails', async () => {
    let forks = 0;
    class Failing extends TextEngine {
      override async fork(context: object): Promise<object> {
        if (forks++ === 0) throw new Error('no pages');
        const fork = await super.fork(context);
        await new Promise(setImmediate);
        return fork;
      }
    }
    const engine = new Failing();
    const g = new Builder('forks');
    const contexts = ['a', 'b', 'c'].map((text) => g.prefill(text));
    const [first, ...others] = contexts as [Ref<'context'>, ...Ref<'context'>[]];
    const joined = g.decode(g.join(first, others)).text;
    const later = others.map((context) => g.decode(g.prefill(prompt`${joined}`, { context })).text);
    const graph = g.graph({ texts: { list: later.map((from) => ({ from })) } });
    await assert.rejects(run(graph, { engine }), /no pages/);
    // The second fork ends in the next turn of the event loop.
    for (let turns = 0; turns < 2; turns++) await new Promise(setImmediate);
    assert.deepEqual([forks, engine.live.size], [2, 0]);
  });

  it('ends all nodes with the first failure, and frees their contexts', async () => {
    const engine = new TextEngine();
    const g = new Builder('failing');
    let isAborted = false;
    const context = g.prefill('Once');
    const waiting = g.call('waiting', {}, 'text', (_, { signal }) => {
      signal?.addEventListener('abort', () => {
        isAborted = true;
      });
      return new Promise(() => undefined);
    });
    const bad = g.call('bad', { text: g.decode(context).text }, 'text', () => {
      throw new Error('broken');
    });
    const last = g.decode(g.prefill(prompt`${waiting}`, { context }));
    const graph = g.graph({ bad: { from: bad }, last: { from: last.text } });
    await assert.rejects(run(graph, { engine }), /broken/);
    assert.ok(isAborted);
    assert.equal(engine.live.size, 0);
  });

  it('ends when its signal is aborted', async () => {
    const engine = new TextEngine();
    const g = new Builder('aborted');
    const context = g.prefill('Once');
    const forever = g.call('forever', {}, 'text', () => new Promise(() => undefined));
    const text = g.decode(g.prefill(prompt`${forever}`, { context })).text;
    const controller = new AbortController();
    const running = run(g.graph({ text: { from: text } }), { engine, signal: controller.signal });
    setImmediate(() => controller.abort());
    await assert.rejects(running, { code: 'cancelled' });
    assert.equal(engine.live.size, 0);
  });

  it('starts no node whose fork arrives only after an abort', async () => {
    const controller = new AbortController();
    class Late extends TextEngine {
      sawAbort = false;

      override async fork(context: object, signal: NodeRun['signal']): Promise<object> {
        const fork = await super.fork(context);
        controller.abort();
        this.sawAbort = signal.aborted;
        return fork;
      }
    }
    const engine = new Late();
    const g = new Builder('late');
    const context = g.prefill('Once');
    const texts = ['a', 'b'].map((name) => g.decode(g.prefill(name, { context })).text);
    const running = run(g.graph({ texts: { list: texts.map((from) => ({ from })) } }), {
      engine,
      signal: controller.signal,
    });
    await assert.rejects(running, { code: 'cancelled' });
    await new Promise(setImmediate);
    // The second prefill is the last reader of the context and gets the context itself. It needs no fork, so it started
    // before the abort.
    assert.deepEqual(engine.ran, ['late/prefilling', 'late/prefilling-3']);
    assert.deepEqual([engine.sawAbort, engine.live.size], [true, 0]);
  });

  it('skips the branch that a condition does not take', async () => {
    for (const is of [true, false]) {
      const engine = new TextEngine();
      const events: NodeEvent[] = [];
      const g = new Builder('branches');
      const context = g.prefill('Shared');
      const test = g.call('test', {}, 'flag', () => is);
      const branch = (name: string) => () =>
        g.call(name, { text: g.decode(g.prefill(name, { context })).text }, 'text', () => name);
      const result = g.condition(test, branch('then'), branch('else'));
      const graph = g.graph({ result: { from: result } });
      assert.deepEqual(await run(graph, { engine, onNode: (event) => events.push(event) }), {
        result: is ? 'then' : 'else',
      });
      // A branch has three nodes: a prefilling, a decoding and a call.
      assert.equal(events.filter(({ what }) => what === 'skipped').length, 3);
      assert.equal(events.filter(({ what }) => what === 'started').length, graph.nodes.length - 3);
      assert.equal(engine.live.size, 0);
    }
  });

  it('returns the same value for each result name that refers to it', async () => {
    const engine = new TextEngine();
    const g = new Builder('names');
    const { text, context } = g.decode(g.prefill('Once'), { maxTokens: 2 });
    const results = await run(
      g.graph({
        text: { from: text },
        all: { list: [{ from: text }, { from: text }] },
        one: { from: context },
        other: { from: context },
      }),
      { engine },
    );
    assert.equal(typeof results.text, 'string');
    assert.deepEqual(results.all, [results.text, results.text]);
    assert.ok(results.one && results.one === results.other);
    assert.equal(engine.live.size, 1);
  });

  it('skips a branch with more nodes than the call stack has room for', async () => {
    const g = new Builder('long');
    const test = g.call('test', {}, 'flag', () => false);
    const long = () => {
      let text = g.call('first', {}, 'text', () => 'long');
      for (let i = 0; i < 8000; i++) text = g.call('next', { text }, 'text', (given) => given.text);
      return text;
    };
    const result = g.condition(test, long, () => g.call('other', {}, 'text', () => 'other'));
    assert.deepEqual(await run(g.graph({ result: { from: result } })), { result: 'other' });
  });

  it('fails with the error that its observer throws', async () => {
    for (const what of ['started', 'ended', 'skipped'] as const) {
      const g = new Builder('observed');
      const test = g.call('test', {}, 'flag', () => false);
      const text = (name: string) => () => g.call(name, {}, 'text', () => name);
      const result = g.condition(test, text('then'), text('else'));
      const onNode = (event: NodeEvent) => {
        if (event.what === what && event.node.operation.kind !== 'condition') throw new Error('observed');
      };
      await assert.rejects(run(g.graph({ result: { from: result } }), { onNode }), /observed/);
    }
  });

  it('reports each node that ran to the engine once, nodes of loops and nodes cut off by a failure included', async () => {
    for (const fails of [false, true]) {
      const engine = new TextEngine();
      const g = new Builder('reported');
      const skipped = g.condition(
        g.call('test', {}, 'flag', () => false),
        () => g.call('skipped', {}, 'text', () => ''),
        () => g.call('taken', {}, 'text', () => ''),
      );
      const begun = Promise.withResolvers<void>();
      const endless = g.call('endless', {}, 'text', () => {
        begun.resolve();
        return fails ? new Promise<string>(() => undefined) : 'ended';
      });
      const start = g.call('start', {}, 'number', () => 0);
      const { round } = g.loop({ round: start }, 2, (inner, state) => {
        const next = inner.call('add', { ...state, skipped }, 'number', async (given) => {
          await begun.promise;
          if (fails && given.round === 1) throw new InferletError('internal', 'second round');
          return given.round + 1;
        });
        return { round: next, done: inner.call('done', { next }, 'flag', () => false) };
      });
      const running = run(g.graph({ round: { from: round }, endless: { from: endless } }), { engine });
      if (fails) await assert.rejects(running, /second round/);
      else await running;
      const names = engine.reported.map((id) => id.slice(id.lastIndexOf('/') + 1));
      // Each of the two rounds has two arguments. The names of failed nodes end with "!".
      const loopArguments = ['round', 'condition.value', 'round', 'condition.value'];
      const rounds = fails
        ? ['add', 'done', 'add!', 'loop!', 'endless!']
        : ['add', 'done', 'add', 'done', 'loop', 'endless'];
      assert.deepEqual(names.sort(), ['test', 'taken', 'condition', 'start', ...loopArguments, ...rounds].sort());
    }
  });

  it('repeats a loop until it is done, and no more often than allowed', async () => {
    for (const [most, expected] of [
      [10, 'xoooo'],
      [2, 'xoo'],
    ] as const) {
      const g = new Builder('loop');
      const suffix = g.call('suffix', {}, 'text', () => 'o');
      const start = g.call('start', {}, 'text', () => 'x');
      const { text } = g.loop({ text: start }, most, (inner, state) => {
        const next = inner.call('add', { ...state, suffix }, 'text', (given) => given.text + given.suffix);
        return { text: next, done: inner.call('done', { next }, 'flag', (given) => given.next.length === 5) };
      });
      assert.deepEqual(await run(g.graph({ text: { from: text } })), { text: expected });
    }
  });

  it('gives each round of a loop an unchanged copy of the contexts from outside', async () => {
    const engine = new TextEngine();
    const g = new Builder('rounds');
    const context = g.prefill('Once');
    const round = g.call('zero', {}, 'number', () => 0);
    const texts = g.call('none', {}, 'texts', (): string[] => []);
    const ended = g.loop({ texts, round }, 3, (inner, state) => {
      const text = inner.decode(inner.prefill(' more', { context })).text;
      const longer = inner.call('add', { ...state, text }, 'texts', (given) => [...given.texts, given.text]);
      const next = inner.call('next', state, 'number', (given) => given.round + 1);
      return { texts: longer, round: next, done: inner.call('done', { text }, 'flag', () => false) };
    });
    const after = g.decode(context).text;
    const graph = g.graph({ texts: { from: ended.texts }, round: { from: ended.round }, after: { from: after } });
    const results = await run(graph, { engine });
    const [text, ...others] = results.texts as string[];
    assert.deepEqual(others, [text, text]);
    assert.equal(results.round, 3);
    assert.equal(engine.live.size, 0);
    assert.throws(() => g.loop({ done: g.call('d', {}, 'flag', () => true) }, 1, (_, state) => state), /another name/);
  });

  it('forks a context that the body of a loop returns as two values', async () => {
    const engine = new TextEngine();
    const g = new Builder('twins');
    const start = g.prefill('Once');
    const { left, right } = g.loop({ left: start, right: g.fork(start) }, 2, (inner, { left }) => {
      const context = inner.prefill('.', { context: left });
      return { left: context, right: context, done: inner.call('done', {}, 'flag', () => false) };
    });
    const [one, other] = [g.prefill('L', { context: left }), g.prefill('R', { context: right })];
    const results = await run(g.graph({ one: { from: one }, other: { from: other } }), { engine });
    const texts = [results.one, results.other].map((context) => (context as { text: string }).text);
    assert.deepEqual(texts, ['Once..L', 'Once..R']);
    assert.equal(engine.live.size, 2);
  });

  it('frees the contexts that a round of a loop returned when the next round cannot begin', async () => {
    /** An engine that makes `forks` forks, and then fails once for lack of room. */
    class Full extends TextEngine {
      #forks: number;
      constructor(forks: number) {
        super();
        this.#forks = forks;
      }
      override async fork(context: object): Promise<object> {
        if (this.#forks-- === 0) throw new InferletError('limit-exceeded', 'no room');
        return super.fork(context);
      }
    }
    for (const forks of [0, 1, 2]) {
      const engine = new Full(forks);
      const g = new Builder('rounds');
      const [base, start] = [g.prefill('base'), g.prefill('start')];
      const { context } = g.loop({ context: start }, 3, (inner, state) => {
        const joined = inner.join(inner.prefill('new'), [state.context, base]);
        const { text, context } = inner.decode(joined, { maxTokens: 2 });
        return { context, done: inner.call('done', { text }, 'flag', () => false) };
      });
      await assert.rejects(run(g.graph({ text: { from: g.decode(context).text } }), { engine }), /no room/);
      assert.equal(engine.live.size, 0, `${forks} forks`);
    }
  });

  it('runs a loop over contexts only once, even if its node allows retries', async () => {
    const engine = new TextEngine();
    const g = new Builder('again');
    let failures = 0;
    const { context } = g.loop({ context: g.prefill('start') }, 2, (inner, state) => {
      const text = inner.call('fails', {}, 'text', () => {
        if (failures++ === 0) throw new InferletError('internal', 'first failure');
        return 'more';
      });
      const next = inner.prefill(prompt`${text}`, state);
      return { context: next, done: inner.call('done', { text }, 'flag', () => true) };
    });
    const graph = g.graph({ text: { from: g.decode(context).text } });
    // The first attempt takes over the contexts, so a second attempt would have none. The builder gives loops no retries, but a user's pass (a
    // function that changes the graph) can.
    const nodes = graph.nodes.map((node) => (node.operation.kind === 'loop' ? { ...node, retries: 2 } : node));
    await assert.rejects(run({ ...graph, nodes }, { engine }), /first failure/);
    assert.equal(engine.live.size, 0);
  });

  it('refuses a value whose type differs from the type that its node declares', async () => {
    const g = new Builder('typed');
    const wrong = g.call('wrong', {}, 'texts', () => 'one' as unknown as string[]);
    await assert.rejects(
      run(g.graph({ wrong: { from: wrong } })),
      /"typed\/wrong" must give "value" as texts, and gave string/,
    );
    const argument = g.graph({ text: { from: g.argument('question', 'text') } });
    await assert.rejects(
      run(argument, { given: { question: 7 } }),
      /The input must have "question" as text, and has number/,
    );
  });
});
