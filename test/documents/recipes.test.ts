import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { PieClient } from '#gateway/client/client.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { builtComponent } from '#test/harness/built.ts';
import { call } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { functionsPlatform } from '#test/harness/functions.ts';
import { codeBlocks } from '#test/harness/newcomer.ts';
import { type Platform, ROOT } from '#test/harness/platform.ts';
import { ToolServer } from '#test/harness/tool-server.ts';
import { examplesIn, isInferlet } from './examples.ts';

/** Address that the document gives for the tool's service. */
const SERVICE = '127.0.0.1:8080';

/** A section of docs/recipes.md. */
interface Recipe {
  readonly name: string;
  readonly manifest: object;
  /** Input of the section's command `pie invoke`. */
  readonly input: string;
}

function recipesOf(document: string): Recipe[] {
  const [, ...sections] = document.split(/^## /m);
  return sections.map((section) => {
    const [, name = ''] = /^\/\/ (\S+)\.ts$/m.exec(section) ?? [];
    const [, input = ''] = new RegExp(`^pie invoke ${name} .*--input '(.*?)'`, 'm').exec(section) ?? [];
    const { main = `${name}.ts`, ...manifest } = JSON.parse(codeBlocks(section, 'json')[0] ?? JSON.stringify({ name }));
    assert.equal(main, `${name}.ts`);
    return { name, manifest, input };
  });
}

/**
 * Builds one component from all inferlets of all documents, because a component for each would take minutes on a busy machine. The component runs the
 * inferlet that has the name of the function.
 */
async function builtExamples(directory: string): Promise<Uint8Array> {
  const inferlets = examplesIn('ts').filter(isInferlet);
  const files = inferlets.map(({ code }, i) => ({
    file: `example-${i}.ts`,
    name: /^\/\/ (\S+)\.ts\n/.exec(code)?.[1] ?? `${i}`,
    code,
  }));
  await Promise.all(files.map(({ file, code }) => writeFile(path.join(directory, file), code)));
  const entry = `import { invocation } from '@pie/inferlet';
${files.map(({ file }, i) => `import { run as run${i} } from './${file}';`).join('\n')}
const programs = new Map([${files.map(({ name }, i) => `[${JSON.stringify(name)}, run${i}] as const`).join(', ')}]);
export const run = (input: string): Promise<string> =>
  programs.get(invocation().functionName)?.(input) ?? Promise.reject(new Error('No example has this name.'));
`;
  const main = path.join(directory, 'index.ts');
  await writeFile(main, entry);
  return builtComponent(main);
}

describe('the recipes of docs/recipes.md', () => {
  const recipes = new Map(
    recipesOf(readFileSync(path.join(ROOT, 'docs/recipes.md'), 'utf8')).map((recipe) => [recipe.name, recipe]),
  );
  const deployedNames = new Set<string>();
  let component: Uint8Array<ArrayBuffer>;
  let platform: Platform;
  let service: ToolServer;
  before(async () => {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-recipes-'));
    try {
      component = new Uint8Array(await builtExamples(directory));
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
    platform = await functionsPlatform();
    service = await ToolServer.start({ weather: ({ city }) => `${city} is sunny.` });
  });
  after(() => service?.[Symbol.asyncDispose]());

  /** Deploys a recipe with its manifest, and returns its input. */
  async function deployed(name: string) {
    const recipe = recipes.get(name);
    assert.ok(recipe, name);
    deployedNames.add(name);
    const withService = (json: string) => JSON.parse(json.replaceAll(SERVICE, service.host));
    const client = new PieClient({ url: platform.url, apiKey: platform.apiKey });
    await client.deploy(withService(JSON.stringify(recipe.manifest)), component);
    return withService(recipe.input);
  }

  it('stream a completion, whose text depends on the seed', async () => {
    const input = await deployed('stream');
    const storyOf = async (seed: number) => {
      const events = await invoke(platform, 'stream', { ...input, seed });
      const texts = events.filter(({ event }) => event === 'message').map(({ data }) => data.text as string);
      return { text: texts.join(''), output: terminal(events)?.data.output };
    };
    const first = await storyOf(input.seed);
    const again = await storyOf(input.seed);
    const other = await storyOf(input.seed + 1);
    assert.ok(first.text.length > 20 && first.output.tokens > 5 && first.output.tokens <= 60, JSON.stringify(first));
    assert.deepEqual(again, first);
    assert.notEqual(other.text, first.text);
  });

  it('write JSON that fits the schema', async () => {
    const output = await call(platform, 'character', await deployed('character'));
    assert.deepEqual(Object.keys(output).toSorted(), ['age', 'kind', 'name']);
    assert.ok(['child', 'animal', 'adult'].includes(output.kind));
    assert.ok(output.name.length >= 1 && output.name.length <= 20);
    assert.ok(Number.isInteger(output.age) && output.age >= 0 && output.age <= 120);
  });

  it('keep the most probable of several forks', async () => {
    const { best, drafts } = await call(platform, 'best', await deployed('best'));
    assert.equal(new Set(drafts.map(({ text }: { text: string }) => text)).size, 4);
    const scores = drafts.map(({ score }: { score: number }) => score);
    assert.equal(scores[0], Math.max(...scores));
    assert.ok(scores.every((score: number) => score < 0));
    assert.equal(best, drafts[0].text);
  });

  it('call a tool with an argument that the model chose', async () => {
    const output = await call(platform, 'weather', await deployed('weather'));
    assert.deepEqual(
      service.requests.map(({ body }) => body),
      [{ city: output.city }],
    );
    assert.equal(output.report, `${output.city} is sunny.`);
    assert.ok(['Paris', 'Rome', 'Oslo'].includes(output.city));
  });

  it('compute only the new line of a diary', async () => {
    const input = await deployed('diary');
    const first = await call(platform, 'diary', input);
    const second = await call(platform, 'diary', { ...input, line: 'It was sunny.' });
    assert.equal(second.text, `${input.line}\nIt was sunny.\n`);
    // The second text has two lines, but computing it takes no more than a few tokens more than the first line.
    assert.ok(second.computed > 0 && second.computed < first.computed + 3, JSON.stringify([first, second]));
  });

  it('find the passages that answer a question, newer than a year', async () => {
    const input = await deployed('library');
    const { answer, found } = await call(platform, 'library', input);
    assert.equal(typeof answer, 'string');
    assert.deepEqual(found.toSorted(), ['cake', 'cat']);
    // The index still has the passages that the first invocation added.
    const older = await call(platform, 'library', { question: input.question, since: 1900 });
    assert.ok(older.found.includes('old'), JSON.stringify(older));
  });

  it('ask a person, and go on with the answer', async () => {
    const input = await deployed('publish');
    const { stdout } = await platform.pie(['invoke', 'publish', '--async', '--input', JSON.stringify(input)]);
    const id = stdout.trim();
    await eventually(
      async () => (await platform.pie(['answer', id, 'true'])).code === 0,
      'the invocation asks a person',
    );
    const attached = await platform.pie(['attach', id, '--json']);
    const last = JSON.parse(attached.stdout.trim().split('\n').at(-1) ?? '');
    assert.equal(last.data.output.published, true);
    assert.ok(last.data.output.draft.length > 10);
  });

  it('run the steps of a workflow, and the verdict after them', async () => {
    const input = await deployed('review');
    const { summary, verdict } = await call(platform, 'review', input);
    assert.deepEqual(
      summary.split('\n').map((line: string) => line.split(':')[0]),
      input.aspects,
    );
    assert.ok([' good', ' bad'].includes(verdict), verdict);
  });

  it('are all run by these tests', () => {
    assert.deepEqual([...recipes.keys()].toSorted(), [...deployedNames].toSorted());
  });
});
