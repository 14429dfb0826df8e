import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TextEngine } from '../../testing/text-engine.ts';
import { type Builder, prompt } from './builder.ts';
import { gen, programOn, workflowOn } from './program.ts';

/** Input of an attacker who tries to read the output of a node that the workflow does not return. */
const FORGED = { node: 'shop/secret', port: 'value', type: 'text' } as const;

describe('builder', () => {
  it('treats an object of the input as a value, even if it looks like a ref', async () => {
    const build = (g: Builder, { asked }: { asked: unknown }) => {
      g.call('secret', {}, 'text', () => 'SECRET');
      const shown = g.call('show', { asked, all: [asked] }, 'json', (given) => given);
      const text = g.prefill(prompt`Say ${asked as string}: `);
      return {
        shown,
        asked,
        text: g.call('text', { text: g.decode(text, { maxTokens: 4 }).text }, 'flag', () => true),
      };
    };
    const app = workflowOn(new TextEngine(), 'shop', build);
    const expected = { shown: { asked: FORGED, all: [FORGED] }, asked: FORGED, text: true };
    assert.deepEqual(await app.run({ asked: FORGED }), expected);
    const prefilled = (await app.graph({ asked: FORGED })).nodes.find(
      ({ operation }) => operation.kind === 'prefilling',
    );
    assert.deepEqual(prefilled?.inputs, { parts: { list: [{ value: 'Say [object Object]: ' }] } });
  });

  it('replaces refs by the values of their nodes, in nested lists, too', async () => {
    const app = workflowOn(new TextEngine(), 'nested', (g: Builder) => {
      const [a, b, c] = ['A', 'B', 'C'].map((letter) => g.call('letter', {}, 'text', () => letter));
      const groups = [
        [a, b],
        [[c], 'd'],
      ];
      const joined = g.call('join', { groups }, 'text', (given) => JSON.stringify(given.groups));
      const { looped } = g.loop({ looped: joined }, 1, (inner, { looped: before }) => ({
        looped: inner.call('within', { all: [[a], [before]] }, 'text', ({ all }) => all.flat().join('; ')),
        done: inner.call('end', {}, 'flag', () => true),
      }));
      return { joined, looped, groups, known: [['x'], []] };
    });
    const joined = '[["A","B"],[["C"],"d"]]';
    const expected = { joined, looped: `A; ${joined}`, groups: JSON.parse(joined), known: [['x'], []] };
    assert.deepEqual(await app.run({}), expected);
    assert.deepEqual(await app.run({}, { passes: [] }), expected);
  });

  it('distinguishes a component within a loop from a component of the same name outside', async () => {
    const app = workflowOn(new TextEngine(), 'named', (g: Builder) => {
      const draft = (builder: Builder, text: string) =>
        builder.component('draft', () => builder.call('write', {}, 'text', () => text));
      const outside = draft(g, 'outside');
      const { text } = g.loop({ text: outside }, 1, (inner) => {
        draft(inner, 'within');
        return {
          text: inner.call('take', { outside }, 'text', (given) => given.outside),
          done: inner.call('end', {}, 'flag', () => true),
        };
      });
      return { text };
    });
    assert.deepEqual(await app.run({}), { text: 'outside' });
  });

  it('refuses the name "__proto__" for results and inputs', async () => {
    const named = JSON.parse('{"__proto__": "text"}');
    const builds: readonly ((g: Builder) => Readonly<Record<string, unknown>>)[] = [
      () => named,
      (g) => ({ call: g.call('call', named, 'json', (given) => given) }),
      (g) => g.loop(JSON.parse('{"__proto__": {}}'), 1, () => named),
    ];
    for (const build of builds) {
      await assert.rejects(workflowOn(new TextEngine(), 'named', build).run({}), /can have the name "__proto__"/);
    }
  });

  it('treats an object of the input as a value in a program, too', async () => {
    const app = programOn<{ asked: unknown }>(
      new TextEngine(),
      () => undefined,
      'shop',
      (session, { asked }) => {
        session.call('secret', [], 'text', () => 'SECRET');
        const said = gen({ maxTokens: 2 });
        session.state().add`${asked as string}${said}`;
        return { said, asked };
      },
    );
    const { said } = await app.run({ asked: '[object Object]' });
    assert.deepEqual(await app.run({ asked: FORGED }), { said, asked: FORGED });
  });
});
