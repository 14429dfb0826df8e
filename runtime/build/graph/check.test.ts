import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { hasWorkflows } from '../component/source.ts';
import { BuildError } from '../outcome.ts';
import { checkWorkflows } from './check.ts';

const HEAD = `import { choice, gen, program, workflow } from '@pie/inferlet/workflow';`;

/** Two programs: `plain` can be traced, `looks` cannot. The module prints while it loads and afterwards; the check must ignore these lines. */
const TRACED = `${HEAD}
import { more } from './more.ts';
console.log('loading'), setTimeout(() => console.log('late'), 50);
const plain = program('plain', (session, { steps = 1 }: { steps?: number }) => {
  const state = session.state().add\`Why is \${session.argument('topic')}?\`;
  let last = gen({ maxTokens: 2 });
  for (let i = 0; i < steps; i++) state.add\`\${(last = gen({ maxTokens: 2 }))}\`;
  return { last, more: more(last) };
}, { plans: [{}] });
const looks = program('looks', async function looking(session) {
  const word = gen();
  session.state().add\`Say: \${word}\`;
  return { said: await session.read(word) };
});
export const run = () => (looks ? plain : looks);
`;

/** The text of `more.ts`, whose function tests a value of a program. Because of the type, the compiled code has other line numbers. */
const helper = (test: string) => `export const more = (value: unknown): string => {
  type Unused = string;
  if (${test}) return 'a';
  return 'b';
};
`;

describe('the check of workflows', () => {
  let folder = '';
  before(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'pie-check-test-'));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  async function check(files: Readonly<Record<string, string>>): Promise<string[]> {
    for (const [name, text] of Object.entries(files)) await writeFile(path.join(folder, name), text);
    return checkWorkflows({ directory: folder, entry: path.join(folder, 'index.ts') });
  }
  const manifest = (example: unknown) => JSON.stringify({ name: 'checked', input: { examples: [example] } });

  it('runs for sources that use workflows, in any folder', () => {
    const directory = '/clone/functions/judge';
    assert.ok(hasWorkflows({ directory }, ['index.ts', '../sdk/src/workflow/index.ts']));
    assert.ok(hasWorkflows({ directory: '/other' }, ['node_modules/@pie/inferlet/dist/workflow/index.js']));
    assert.ok(!hasWorkflows({ directory }, ['index.ts', '../sdk/src/context/context.ts']));
  });

  it('reports each traced program, and for an interpreted program the reason with its place', async () => {
    const notes = await check({
      'index.ts': TRACED,
      'more.ts': helper('value === undefined'),
      'pie.json': manifest({ topic: 'the sky blue', steps: 2 }),
    });
    assert.deepEqual(notes, [
      'The program "plain" is traced: 4 nodes, 1 plan in the artifact.',
      'The program "looks" cannot be traced and will be interpreted. The program reads a value before the program is whole at looking (index.ts:13:32).',
    ]);
  });

  it('refuses a condition on a value, also in an imported file, and names the place and the alternatives', async () => {
    for (const test of ['value', '!value', `value === 'a'`, `'a' !== value`]) {
      const refused = check({ 'index.ts': TRACED, 'more.ts': helper(test), 'pie.json': manifest({ topic: 'a' }) });
      await assert.rejects(refused, (error) => {
        assert.ok(error instanceof BuildError);
        const column = 1 + '  if ('.length + test.indexOf('value');
        assert.equal(
          error.message,
          `The source cannot be traced: more.ts:3:${column}: This condition looks at a value that may not exist yet.`,
        );
        assert.match(error.hint, /state\.when\(…\) or state\.loop\(…\).*await session\.read/);
        assert.deepEqual(
          error.diagnostics.map(({ file, line, source }) => [file, line, source]),
          [['more.ts', 3, `  if (${test}) return 'a';`]],
        );
        return true;
      });
    }
  });

  it('refuses logical assignments to a value, and finds conditions in files with JSX or decorators', async () => {
    const source = (test: string) => `export const more = (value: any): string => {
  ${test}
  const shown = <b />;
  return String(shown === undefined);
};
const React = { createElement: () => 'b' };
const d = (..._: unknown[]): void => undefined;
`;
    const index = TRACED.replace('./more.ts', './more.tsx');
    // The column of the tested expression; in the file, two spaces stand before the text.
    for (const [test, column] of [
      [`value ||= 'a';`, 3],
      [`let one = { value }; one.value &&= 'a';`, 24],
      [`if (value) return 'a';`, 7],
      [`@d class One {} if (value) return 'a';`, 23],
    ] as const) {
      const files = { 'index.ts': index, 'more.tsx': source(test), 'pie.json': manifest({ topic: 'a' }) };
      await assert.rejects(check(files), new RegExp(`: more\\.tsx:2:${column}: This condition looks at a value`));
    }
    const files = { 'index.ts': index, 'more.tsx': source(`value ??= 'a';`), 'pie.json': manifest({ topic: 'a' }) };
    assert.match((await check(files))[0] ?? '', /"plain" is traced/);
  });

  it('accepts a comparison of a value with itself, and of refs with each other', async () => {
    const more = `export const more = (value: unknown): string => {
  const seen = [value];
  return seen.some((each) => each === value) && !seen.some((each) => each !== value) ? 'a' : 'b';
};
`;
    const notes = await check({ 'index.ts': TRACED, 'more.ts': more, 'pie.json': manifest({ topic: 'a' }) });
    assert.match(notes[0] ?? '', /"plain" is traced/);
    const refs = `${HEAD}
export const app = workflow('refs', (g) => {
  const [one, other] = ['a', 'b'].map((text) => g.generate(text, { maxTokens: 1 }));
  return { answer: one === other ? one : other };
});
export const run = () => app;
`;
    await check({ 'index.ts': refs });
  });

  it('refuses a comparison of two values of a program', async () => {
    const more = `let before: unknown;
export const more = (value: unknown): string => {
  const isEqual = value === before ? 'a' : 'b';
  before = value;
  return isEqual;
};
`;
    const refused = check({ 'index.ts': TRACED, 'more.ts': more, 'pie.json': manifest({ topic: 'a' }) });
    await assert.rejects(refused, /more\.ts:3:19: This condition looks at a value/);
  });

  it('refuses a ref of a workflow in a condition', async () => {
    const source = `${HEAD}
export const app = workflow('refs', (g) => {
  const answer = g.generate('Yes or no?', { maxTokens: 1 });
  return { answer, sure: answer ? 1 : 2 };
});
export const run = () => app;
`;
    await assert.rejects(check({ 'index.ts': source }), /index\.ts:4:26: This condition looks at a value/);
  });

  it('reports why a program has no graph or no plan', async () => {
    const source = `${HEAD}
export const app = program('lists', (session, { topics }: { topics: readonly string[] }) => {
  const answers = topics.map((topic) => gen());
  for (const answer of answers) session.state().add\`Now: \${answer}\`;
  return { answers };
}, { plans: [{}] });
export const run = () => app;
`;
    const notes = await check({ 'index.ts': source, 'pie.json': manifest({ topics: ['a'] }) });
    assert.match(notes.join('\n'), /^A plan of the program "lists" cannot be made at the build.*reading 'map'\)$/);
    const without = await check({ 'index.ts': source, 'pie.json': '{}' });
    assert.match(without[1] ?? '', /"lists" was not traced, because pie\.json has no example of its input/);
    const [broken] = await check({ 'index.ts': `${HEAD}\ngen();\nthrow new Error('It is broken.');` });
    assert.match(broken ?? '', /could not be traced at the build.*It is broken/);
  });
});
