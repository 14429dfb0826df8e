import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { componentize } from 'componentize-qjs';
import { invoke, json, terminal } from '#test/harness/events.ts';
import { deployFunction, functionsPlatform } from '#test/harness/functions.ts';
import type { Platform } from '#test/harness/platform.ts';

const MEBIBYTE = 1 << 20;
/** Header of a Wasm module that is not a component. */
const CORE_MODULE = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);

describe('bad input', () => {
  let platform: Platform;
  let directory: string;
  before(async () => {
    platform = await functionsPlatform();
    await deployFunction('text-completion');
    directory = await mkdtemp(path.join(os.tmpdir(), 'pie-bad-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const names = async () =>
    (await json(await platform.fetch('/v1/functions'))).functions.map((each: { name: string }) => each.name).sort();

  async function put(component: Uint8Array<ArrayBuffer>, manifest: object = { name: 'bad' }) {
    const form = new FormData();
    form.set('manifest', JSON.stringify(manifest));
    form.set('component', new Blob([component], { type: 'application/wasm' }), 'component.wasm');
    const response = await platform.fetch('/v1/functions/bad', { method: 'PUT', body: form });
    return { status: response.status, problem: await json(response) };
  }

  /** Checks that a refusal states the error, its reason and the remedy, as problem details (RFC 9457) and as the `error` of OpenAI's format. */
  function assertProblem(answer: { status: number; problem: Record<string, unknown> }, status: number, code: string) {
    assert.equal(answer.status, status, JSON.stringify(answer.problem));
    assert.equal(answer.problem.code, code);
    for (const member of ['type', 'title', 'detail', 'hint', 'requestId']) {
      assert.equal(typeof answer.problem[member], 'string', `${member} is missing`);
    }
    assert.equal((answer.problem.error as { code: string }).code, code);
  }

  async function foreignComponent(): Promise<Uint8Array<ArrayBuffer>> {
    const wit = path.join(directory, 'foreign.wit');
    await writeFile(wit, 'package foreign:thing;\nworld thing {\n  export greet: func(name: string) -> string;\n}\n');
    const jsSource = 'export const greet = (name) => name;';
    const { component } = await componentize({ witPath: wit, jsSource, world: 'thing', stubWasi: true });
    return new Uint8Array(component);
  }

  for (const [what, bytes, status, code] of [
    ['bytes that are not Wasm', async () => new TextEncoder().encode('hello, this is not Wasm'), 422, 'not-wasm'],
    ['a core module', async () => CORE_MODULE, 422, 'core-module'],
    ['a component of another world', foreignComponent, 422, 'wrong-world'],
    ['a component above the limit', async () => new Uint8Array(65 * MEBIBYTE), 413, 'component-too-large'],
  ] as const) {
    test(`${what}: the deploy is refused, and nothing is stored`, async () => {
      const before = await names();
      assertProblem(await put((await bytes()) as Uint8Array<ArrayBuffer>), status, code);
      assert.deepEqual(await names(), before);
    });
  }

  test('a source that does not compile is refused with file, line and column', async () => {
    const before = await names();
    const file = path.join(directory, 'broken.ts');
    await writeFile(file, 'export async function run(input: string) {\n  return input +;\n}\n');
    const deploy = await platform.pie(['deploy', file]);
    assert.notEqual(deploy.code, 0);
    assert.match(deploy.stderr, /broken\.ts:2:1\d/);
    assert.deepEqual(await names(), before);
  });

  test('the import of a Node built-in is refused by name', async () => {
    const file = path.join(directory, 'node.ts');
    await writeFile(
      file,
      `import { readFileSync } from 'node:fs';\nexport const run = async () => readFileSync('/etc/passwd', 'utf8');\n`,
    );
    const deploy = await platform.pie(['deploy', file]);
    assert.notEqual(deploy.code, 0);
    assert.match(deploy.stderr, /node:fs/);
  });

  async function post(name: string, body: string, headers: Record<string, string> = {}) {
    const response = await platform.fetch(`/v1/functions/${name}/invocations`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    });
    return { status: response.status, problem: await json(response) };
  }

  test('input that violates the schema is refused with its field', async () => {
    const answer = await post('text-completion', JSON.stringify({ prompt: '', maxTokens: 'many' }));
    assertProblem(answer, 422, 'invalid-input');
    assert.match(String(answer.problem.field), /maxTokens/);
  });

  test('an unknown function is refused', async () =>
    assertProblem(await post('nobody', '{}'), 404, 'unknown-function'));

  test('malformed JSON is refused', async () =>
    assertProblem(await post('text-completion', '{"prompt":'), 400, 'malformed-json'));

  test('a wrong key is refused', async () => {
    assertProblem(await post('text-completion', '{}', { authorization: 'Bearer pie_wrong' }), 401, 'unauthorized');
  });

  test('a prompt beyond the context is refused', async () => {
    const end = terminal(
      await invoke(platform, 'text-completion', { prompt: 'once upon a time '.repeat(400), maxTokens: 4 }),
    );
    assert.equal(end?.event, 'error');
    assert.equal(end?.data.code, 'inferlet-error');
    assert.match(end?.data.message, /256/);
  });
});
