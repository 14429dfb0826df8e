import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { deployWith } from '#test/harness/deploy.ts';
import { invoke, type StreamEvent, say, terminal } from '#test/harness/events.ts';
import { deployFunction, functionsPlatform, ownAddress } from '#test/harness/functions.ts';
import { type Platform, until } from '#test/harness/platform.ts';
import { world } from '#wit/generated/world.ts';

interface CaseReport {
  /** True, or a text that says what is wrong. */
  readonly ok: true | string;
  /** Errors that the calls returned, by the expected error. */
  readonly fails: Readonly<Record<string, string>>;
}

let platform: Platform;
let server: http.Server;
let origin = '';
const called = new Set<string>();

/** Answers one of the guest's HTTP requests. */
function answer(request: http.IncomingMessage, response: http.ServerResponse): void {
  switch (request.url) {
    case '/echo': {
      let body = '';
      request.setEncoding('utf8').on('data', (piece: string) => {
        body += piece;
      });
      request.on('end', () => {
        response.setHeader('content-type', 'application/json');
        response.end(JSON.stringify({ method: request.method, test: request.headers['x-test'], body }));
      });
      return;
    }
    case '/moved':
      response.writeHead(302, { location: '/echo' }).end();
      return;
    case '/elsewhere':
      response.writeHead(302, { location: 'http://example.com/' }).end();
      return;
    case '/half':
      response.writeHead(200, { 'content-length': '100' });
      response.write('half');
      setTimeout(() => response.destroy(), 20);
      return;
    case '/breaks':
      request.socket.destroy();
      return;
    default:
    // Requests for other paths get no answer.
  }
}

/** Runs one part of the guest's cases; `onText` receives each of its text messages with the invocation's id. */
async function runPart(
  name: string,
  options: { function?: string; onText?: (text: string, id: string) => Promise<void> } = {},
): Promise<void> {
  let id = '';
  const answered: Promise<void>[] = [];
  const onEvent = (event: StreamEvent) => {
    if (event.event === 'start') id = event.data.invocation;
    else if (event.event === 'message' && event.data.text !== undefined && options.onText)
      answered.push(options.onText(event.data.text, id));
  };
  const events = await invoke(platform, options.function ?? 'contract', { part: name, origin }, { onEvent });
  await Promise.all(answered);
  const end = terminal(events);
  assert.equal(end?.event, 'result', JSON.stringify(end?.data));
  const wrong: string[] = [];
  for (const [call, reports] of Object.entries(end?.data.output as Record<string, CaseReport[]>)) {
    called.add(call);
    for (const { ok, fails } of reports) {
      if (ok !== true) wrong.push(`${call}: ${ok}`);
      for (const [expected, got] of Object.entries(fails)) {
        if (got !== expected) wrong.push(`${call} should fail with ${expected} and gave ${got}`);
      }
    }
  }
  assert.deepEqual(wrong, []);
}

describe('every function of the contract, from a guest', () => {
  before(async () => {
    server = http.createServer(answer);
    platform = await functionsPlatform();
    await new Promise<void>((resolve) => server.listen(0, ownAddress(), resolve));
    origin = `http://${ownAddress()}:${(server.address() as AddressInfo).port}`;
    await deployFunction('echo-session');
    const grants = { hosts: [new URL(origin).host], store: true, messaging: true, launch: ['echo-session'] };
    await deployWith(platform, 'contract', { grants });
    await deployWith(platform, 'contract', { name: 'contract-denied', grants: {} });
  });

  after(() => {
    server?.closeAllConnections();
    server?.close();
  });

  test('runtime, environment and session', () =>
    runPart('host', {
      async onText(text, id) {
        if (text !== 'ready') return;
        await say(platform, id, { text: 'hello' });
        await say(platform, id, { base64: Buffer.from([7, 8]).toString('base64') });
        await say(platform, id, { close: true });
      },
    }));

  test('person', () =>
    runPart('person', {
      async onText(text, id) {
        if (text !== 'asked') return;
        const headers = { 'content-type': 'application/json' };
        const postAnswer = () => platform.fetch(`/v1/invocations/${id}/answer`, { method: 'POST', headers, body: '7' });
        // The guest sends `asked` before its attempt ends. The platform accepts an answer only after the end of the attempt.
        await until('the answer is accepted', async () => (await postAnswer()).ok);
      },
    }));

  test('tokenize', () => runPart('tokenize'));

  test('queue, forward, input-text, output-text, fused, penalties and introspect', () => runPart('compute'));

  test('allocate and kv-files', () => runPart('memory'));

  test('grammar', () => runPart('grammar'));

  test('adapter', () => runPart('adapter'));

  test('input-image', () => runPart('image'));

  test('embedding and rerank', () => runPart('encoders'));

  test('index', () => runPart('search'));

  test('store, messaging, http and children', () => runPart('platform'));

  test('store, messaging, http and children, without a grant', () =>
    runPart('denied', { function: 'contract-denied' }));

  test('file-exchange', () =>
    runPart('files', {
      async onText(text, id) {
        if (text !== 'file') return;
        const put = await platform.fetch(`/v1/invocations/${id}/files/data.bin`, {
          method: 'PUT',
          headers: { 'content-type': 'application/octet-stream' },
          body: new Uint8Array([0, 1, 255]),
        });
        assert.ok(put.ok, await put.text());
        const got = await platform.fetch(`/v1/invocations/${id}/files/report.txt`);
        assert.equal(got.headers.get('content-type'), 'text/plain');
        assert.equal(await got.text(), 'from the inferlet');
        await say(platform, id, { close: true });
      },
    }));

  test('no function is left uncalled', () => {
    const contractFunctions = world.imports.flatMap(({ name, functions, resources }) =>
      [...functions, ...resources.flatMap((resource) => resource.functions)].map(
        ({ coreName }) => `${name}.${coreName}`,
      ),
    );
    assert.deepEqual([...called].sort(), contractFunctions.sort());
  });
});
