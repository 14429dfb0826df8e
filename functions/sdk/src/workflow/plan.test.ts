import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { TextEngine } from '../../testing/text-engine.ts';
import { type Builder, prompt } from './builder.ts';
import { InputReads, MOST_PLANS, type PlanOptions } from './plan.ts';
import { gen, type ProgramBody, programOn, workflowOn } from './program.ts';

interface Input {
  readonly question: string;
  readonly steps?: number;
  readonly hints?: readonly string[];
  readonly style?: { readonly kind: string; readonly loud?: boolean };
}

/** A program whose graph depends on parts of its input. The result's `made` tells how often its graph was made. */
function counted(options?: PlanOptions<Input>) {
  let made = 0;
  const body: ProgramBody<Input> = (session, input) => {
    made++;
    const { steps = 1, style } = input;
    const state = session.state().add`Q: ${session.argument('question')} `;
    if (style?.kind === 'kind') state.add`Be kind. `;
    if (style?.loud) state.add`${Object.keys(input).length}! `;
    const answers = Array.from({ length: steps }, () => {
      const answer = gen({ maxTokens: 3 });
      state.add`A: ${answer}`;
      return answer;
    });
    for (const hint of style ? session.list('hints') : []) state.add`${hint}${answers[0] ?? ''}`;
    return { answers };
  };
  const app = programOn<Input>(new TextEngine(), () => undefined, 'counted', body, options);
  return { app, made: () => made };
}

/** A program whose graph depends only on the number of texts in `list`. */
const listed = (options: PlanOptions<{ list: readonly string[] }>) => {
  let made = 0;
  const app = programOn<{ list: readonly string[] }>(
    new TextEngine(),
    () => undefined,
    'listed',
    (session) => {
      made++;
      const answers = session.list('list').map((text) => {
        const answer = gen({ maxTokens: 2 });
        session.state().add`${text}: ${answer}`;
        return answer;
      });
      return { answers };
    },
    options,
  );
  return { app, made: () => made };
};

describe('plans', () => {
  it('of the build serve every input for which the program makes the same graph', async () => {
    const { app, made } = listed({ plans: [{ list: ['', ''] }, { list: [''] }] });
    assert.deepEqual([made(), app.plans?.count, app.plans?.faults], [2, 2, []]);
    const plain = listed({}).app;
    for (const list of [['a'], ['a', 'b'], ['cat', 'dog'], ['x']]) {
      assert.deepEqual(await app.run({ list }), await plain.run({ list }));
      assert.deepEqual(await app.run({ list }, { interpret: true }), await plain.run({ list }));
    }
    // Two graphs of the build, and four runs that were interpreted.
    assert.equal(made(), 6);
    // Both lists have three texts, so they share one plan.
    await app.run({ list: ['a', 'b', 'c'] });
    await app.run({ list: ['d', 'e', 'f'] });
    assert.equal(made(), 7);
    // Other passes need another plan.
    await app.run({ list: ['d', 'e', 'f'] }, { passes: [] });
    assert.equal(made(), 8);
  });

  it('change no result, whatever the program reads', async () => {
    const input = fc.record(
      {
        question: fc.constantFrom('Why?', 'Where is the cat?'),
        steps: fc.integer({ min: 1, max: 3 }),
        hints: fc.array(fc.constantFrom('one', 'two'), { maxLength: 3 }),
        style: fc.record({ kind: fc.constantFrom('kind', 'plain'), loud: fc.boolean() }, { requiredKeys: ['kind'] }),
      },
      { requiredKeys: ['question', 'hints'] },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(input, { minLength: 2, maxLength: 12 }), async (inputs) => {
        const [plain, planned] = [counted(), counted({ plans: [{}, { steps: 2 }] })];
        for (const each of [...inputs, ...inputs]) {
          assert.deepEqual(await planned.app.run(each), await plain.app.run(each));
        }
        // Two graphs of the build, and at most one for each input, which the repeated inputs share.
        assert.ok(planned.made() <= 2 + inputs.length, `${planned.made()} graphs for ${inputs.length} inputs`);
      }),
      { seed: 5, numRuns: process.env.PIE_TEST_ALL ? 500 : 40 },
    );
  });

  it('are bounded in number, and the newest ones stay', async () => {
    const { app, made } = counted({ plans: [] });
    for (let steps = 1; steps <= MOST_PLANS + 1; steps++) await app.run({ question: '', steps });
    assert.equal(app.plans?.count, MOST_PLANS);
    const before = made();
    await app.run({ question: 'again', steps: MOST_PLANS + 1 });
    assert.equal(made(), before);
    await app.run({ question: 'again', steps: 1 });
    assert.equal(made(), before + 1);
  });

  it('of the build are dropped last', async () => {
    const { app, made } = counted({ plans: [{ steps: 1 }, { steps: 2 }] });
    for (let steps = 3; steps <= MOST_PLANS + 3; steps++) await app.run({ question: '', steps });
    const before = made();
    for (const steps of [1, 2, MOST_PLANS + 3]) await app.run({ question: '', steps });
    assert.equal(made(), before);
    await app.run({ question: '', steps: 3 });
    assert.equal(made(), before + 1);
  });

  it('that the build cannot make are made at a run, and the build reports the reason', async () => {
    const bodies: readonly [ProgramBody<Input>, RegExp][] = [
      [async () => ({ a: 1 }), /The program returns a promise/],
      [(_, { hints }) => ({ a: hints?.length, b: (hints as string[])[0] }), /Cannot read properties of undefined/],
      [() => ({ a: `${gen()}` }), /turns a value that may not exist yet into a string/],
    ];
    const many = Array.from({ length: MOST_PLANS + 1 }, (_, i) => ({ steps: i + 1 }));
    assert.deepEqual(counted({ plans: many }).app.plans?.faults, ['17 plans are listed, but at most 16 are possible.']);
    for (const [body, reason] of bodies) {
      const app = programOn<Input>(new TextEngine(), () => undefined, 'late', body, { plans: [{}] });
      assert.equal(app.plans?.count, 0);
      assert.match(app.plans?.faults.join() ?? '', reason);
    }
    const app = programOn<Input>(
      new TextEngine(),
      () => undefined,
      'late',
      async () => ({ a: 1 }),
      { plans: [{}] },
    );
    assert.deepEqual(await app.run({ question: '' }), { a: 1 });
  });

  it('fail when a function of the graph reads the input directly', async () => {
    const body: ProgramBody<Input> = (session, input) => {
      return { said: session.call('said', [session.argument('question')], 'text', () => `${input.steps}`) };
    };
    const app = programOn<Input>(new TextEngine(), () => undefined, 'late', body, { plans: [{}] });
    await assert.rejects(app.run({ question: '', steps: 2 }), /The input "steps" is read after the graph was made/);
  });

  it('serve workflows of components, too', async () => {
    let made = 0;
    const build = (g: Builder, { count }: { question: string; count: number }) => {
      made++;
      const question = g.component('asked', () => g.argument('question', 'text'));
      const answer = (i: number) => g.generate(prompt`${i}. ${question}`, { maxTokens: 2 });
      return { answers: Array.from({ length: count }, (_, i) => answer(i)) };
    };
    const app = workflowOn(new TextEngine(), 'survey', build, { plans: [{ count: 2 }] });
    const plain = workflowOn(new TextEngine(), 'survey', build);
    const input = { question: 'Who sat on the mat?', count: 2 };
    const results = await app.run(input);
    assert.equal(made, 1);
    assert.deepEqual(results, await plain.run(input));
    await assert.rejects(app.run({ count: 2 } as never), /The input must have "question" as text, and has undefined/);
  });

  it('belong to the input as it was given, even if the program or its caller changes it later', async () => {
    const build = (g: Builder, { list }: { list: string[] }) => {
      const last = list.pop() ?? '';
      const vectors = g.embed(list, { batch: 2 });
      const count = g.call('count', { vectors }, 'number', (given) => given.vectors.length);
      return { count: g.call('both', { count, last }, 'text', (given) => `${given.count}${given.last}`) };
    };
    const app = workflowOn(new TextEngine(), 'popped', build, { plans: [] });
    const input = { list: ['a', 'b', 'c', 'd'] };
    assert.deepEqual(await app.run(input), { count: '3d' });
    assert.equal(input.list.length, 4);
    input.list.push('e');
    assert.deepEqual(await app.run(input), { count: '4e' });
    assert.deepEqual(await app.run({ list: ['a', 'b', 'c'] }), { count: '2c' });
    assert.deepEqual(await app.run({ list: ['a', 'b', 'c', 'd'] }), { count: '3d' });
    assert.equal(app.plans?.count, 3);
  });

  it('do not lose an argument that a skipped branch reads first', async () => {
    const build = (g: Builder) => {
      const flag = g.call('flag', {}, 'flag', () => false);
      const then = () => g.generate(prompt`${g.argument('question', 'text')}`, { maxTokens: 2 });
      const chosen = g.condition(flag, then, () => g.generate('No', { maxTokens: 2 }));
      return { chosen, question: g.argument('question', 'text') };
    };
    const { question } = await workflowOn(new TextEngine(), 'both', build).run({ question: 'Why?' });
    assert.equal(question, 'Why?');
  });
});

describe('reads of an input', () => {
  it('distinguish inputs only by the parts that were read', () => {
    const cases: readonly [read: (input: Input) => unknown, same: unknown, other: unknown][] = [
      [({ steps }) => steps, { steps: 2, question: 'b' }, { steps: 3, question: 'a' }],
      [({ style }) => style, { steps: 9, style: { kind: 'x' } }, { style: { kind: 'x', loud: true } }],
      [({ hints }) => hints, { hints: ['a'] }, { hints: { 0: 'a' } }],
      [(input) => Object.keys(input), { question: 'a', steps: 2, hints: ['a'], style: { kind: 'x' } }, {}],
      [(input) => JSON.stringify(input), { question: 'a', steps: 2, hints: ['a'], style: { kind: 'x' } }, null],
      [(input) => 'more' in input, { style: { kind: 'x' }, hints: ['a'], steps: 2, question: 'a' }, { more: 1 }],
    ];
    for (const [read, same, other] of cases) {
      const reads = new InputReads();
      const input: Input = { question: 'a', steps: 2, hints: ['a'], style: { kind: 'x' } };
      assert.deepEqual(read(reads.watch(input)), read(input));
      assert.ok(reads.fit(input) && reads.fit(same), `${read}`);
      assert.ok(!reads.fit(other), `${read}`);
    }
  });

  it('distinguish a member that is undefined from a different member and from a missing member', () => {
    const reads = new InputReads();
    const input = { style: { kind: undefined } };
    assert.deepEqual(reads.watch(input).style, input.style);
    assert.ok(reads.fit({ style: { kind: undefined } }));
    for (const style of [{ loud: undefined }, { loud: true }, {}]) assert.ok(!reads.fit({ style }));
  });

  it('compare an input that is not a plain object as a whole', () => {
    const [text, map] = [new InputReads(), new InputReads()];
    assert.equal(text.watch('one'), 'one');
    assert.deepEqual([text.fit('one'), text.fit('two'), text.fit({})], [true, false, false]);
    const input = new Map([['a', 1]]);
    assert.equal(map.watch(input), input);
    assert.deepEqual([map.fit(input), map.fit(new Map([['a', 1]]))], [true, false]);
  });
});
