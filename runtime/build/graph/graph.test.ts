import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { BuildError } from '../outcome.ts';
import { runGraphStage } from './evaluate.ts';

const WORKFLOW = `
import { defineInferlet, models } from '@pie/inferlet';
import { prompt, workflow } from '@pie/inferlet/workflow';
export const app = workflow('two-steps', (g, { topic, fault }: { topic: string; fault?: string }) => {
  if (fault === 'model') models();
  if (fault === 'file') process.getBuiltinModule('fs').readFileSync('/etc/hostname');
  if (fault === 'folder') process.getBuiltinModule('fs').readdirSync('.');
  if (fault === 'database') new (process.getBuiltinModule('node:sqlite')).DatabaseSync(':memory:');
  const first = g.component('first', () => g.generate(\`About \${topic}:\`, { maxTokens: 4, model: 'small' }));
  return { second: g.component('second', () => g.generate(prompt\`Write a long story that begins so: \${first}\`)) };
});
export const run = defineInferlet((input: { topic: string }) => app.run(input));
`;

describe('the graph of a source', () => {
  let folder = '';
  before(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'pie-graph-test-'));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  async function draw(source: string, input: unknown) {
    const [entry, out, inputFile] = ['index.ts', 'graph.svg', 'input.json'].map((name) => path.join(folder, name));
    await writeFile(entry!, source);
    await writeFile(inputFile!, JSON.stringify(input));
    return { ...(await runGraphStage(entry!, out!, inputFile)), svg: await readFile(out!, 'utf8') };
  }

  it('is drawn before and after the optimisation passes', async () => {
    const { before: plain, after: optimised, svg } = await draw(WORKFLOW, { topic: 'bees' });
    assert.match(plain, /^two-steps: 4 nodes\nfirst\n {2}first\/prefilling +prefilling +parts: \["About bees:"\]/);
    assert.match(plain, /\nsecond \(after first\)\n/);
    assert.match(optimised, /^two-steps: 5 nodes\n/);
    assert.match(optimised, /partial-prefilling/);
    assert.match(svg, /^<svg xmlns="http:\/\/www.w3.org\/2000\/svg"/);
  });

  it('is refused with the reason when the source needs a platform or rights, or has a fault', async () => {
    const cases: readonly [string, unknown, RegExp][] = [
      [WORKFLOW, { topic: 'x', fault: 'model' }, /A graph is made without a platform/],
      [WORKFLOW, { topic: 'x', fault: 'file' }, /Access to this API has been restricted/],
      [WORKFLOW, { topic: 'x', fault: 'folder' }, /Access to this API has been restricted/],
      [WORKFLOW, { topic: 'x', fault: 'database' }, /DatabaseSync/],
      ['export const run = async () => "";', {}, /The source exports no workflow/],
      ['export const run = ;', {}, /The source does not compile: index\.ts:1:20/],
      ['process.exit(0);', {}, /The source ends the program that makes it/],
      ["await new Promise((done) => process.stdout.write('x'.repeat(20 << 20), done));", {}, /prints more than 16 MiB/],
    ];
    for (const [source, input, expected] of cases) {
      await assert.rejects(draw(source, input), (error) => error instanceof BuildError && expected.test(error.message));
    }
  });
});
