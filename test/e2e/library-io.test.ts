import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { call, deploySource } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { functionsPlatform, ownAddress } from '#test/harness/functions.ts';
import { type Platform, ROOT } from '#test/harness/platform.ts';

/** A server with the cases that an HTTP client must handle. */
const server = http.createServer((request, response) => {
  const { url = '', method, headers } = request;
  if (url === '/redirect') response.writeHead(302, { location: '/lines' }).end();
  else if (url === '/loop') response.writeHead(307, { location: '/loop' }).end();
  else if (url === '/missing') response.writeHead(404).end('nothing here');
  else if (url === '/lines') response.end('eins\r\nzwölf\n\nlast');
  else if (url === '/echo') {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => {
      body += text;
    });
    request.on('end', () =>
      response.writeHead(200, { 'x-reply': 'yes' }).end(JSON.stringify({ method, headers, body })),
    );
  }
});

describe('the I/O of the guest library', () => {
  let platform: Platform;
  let copy: string;

  before(async () => {
    platform = await functionsPlatform();
    await new Promise<void>((resolve) => server.listen(0, ownAddress(), resolve));
    copy = await mkdtemp(path.join(os.tmpdir(), 'pie-function-'));
    await cp(path.join(ROOT, 'test/inferlets/library-io'), copy, { recursive: true });
    const manifest = JSON.parse(await readFile(path.join(copy, 'pie.json'), 'utf8'));
    manifest.grants.hosts = [origin().host];
    await writeFile(path.join(copy, 'pie.json'), JSON.stringify(manifest));
    await deploySource(platform, copy);
  });

  after(async () => {
    server.closeAllConnections();
    server.close();
    await rm(copy, { recursive: true, force: true });
  });

  const origin = () => new URL(`http://${ownAddress()}:${(server.address() as AddressInfo).port}`);

  it('fetches as the standard describes, and reports each failure', async () => {
    const { faults, ...got } = await call(platform, 'library-io', { what: 'fetch', url: origin().origin });
    assert.deepEqual(got, {
      echo: ['POST', 'application/json', '1', '{"a":1}', 'yes'],
      plain: ['PUT', 'text/x'],
      followed: ['/lines', 200],
      manual: [302, '/lines', false],
      missing: [404, false, 'nothing here'],
      lines: ['eins', 'zwölf', '', 'last'],
    });
    const expected = [
      /^closed: The response was closed while its body was read/,
      /^unavailable: .* redirects to \/lines, which was not to be followed/,
      /^unavailable: .* redirects to \/loop, the 11th in a row/,
      /^unsupported: .*example\.org/,
      /^deadline-exceeded: It took longer than 50 ms/,
      /^unavailable: .* answered 200 with a body that is not JSON: "eins/,
      /^closed: The body of this response was read already/,
    ];
    assert.equal(faults.length, expected.length);
    for (const [i, pattern] of expected.entries()) assert.match(faults[i], pattern);
  });

  it('stores values, and four concurrent children lose no update', async () => {
    assert.deepEqual(await call(platform, 'library-io', { what: 'store' }), {
      count: 32,
      text: 'two',
      bytes: [0, 255],
      keys: ['library-io/count', 'library-io/json', 'library-io/new'],
      none: null,
      swaps: [true, null, true],
      fault: 'invalid-argument: The value of "library-io/json" was not written as JSON: read it with store.get.',
      left: [],
    });
  });

  it('broadcasts to subscribers and passes lines through a queue', async () => {
    const { fault, ...got } = await call(platform, 'library-io', { what: 'messaging' });
    assert.deepEqual(got, { heard: 2, got: ['a', [1]], after: 1, line: ['x', 'y'], left: 0 });
    assert.match(fault, /^closed: This subscription has ended/);
  });

  it('launches children, exchanges messages with them and reads their results and errors', async () => {
    const { failure, unknown, ...got } = await call(platform, 'library-io', { what: 'children' });
    const aborted = 'cancelled: too late';
    assert.deepEqual(got, { said: ['one!', 'two!'], result: 42, cancelled: 'cancelled', aborted, ids: true });
    assert.match(failure, /^dependency-failed: library-io \(inv_\w+\) failed: .*not-found: as was asked/);
    assert.match(unknown, /^(not-found|unsupported): .*no-such-function/);
  });

  it('refuses index fields and filters of a wrong type, and vectors of different lengths', async () => {
    const { faults, ...got } = await call(platform, 'library-io', { what: 'index' });
    assert.deepEqual(got, { entries: 0, dropped: true });
    const refused = (field: string, what: string) =>
      `invalid-argument: "${field}" takes a text, a number or a boolean, not ${what}.`;
    assert.deepEqual(faults, [
      ...['null', 'undefined', 'object', 'null', 'undefined', 'null'].map((what) => refused('author', what)),
      refused('year', 'null'),
      'invalid-argument: The filter of "year" takes not, below, atMost, above, atLeast, but no "least".',
      'invalid-argument: The vectors of one call must have one length: that of "of 2" has 2 values, that of "of 4" 4.',
    ]);
  });

  it('refuses a message above 1 MiB, and sends the other messages in order', async () => {
    const events = await invoke(platform, 'library-io', { what: 'messages' });
    const fault = 'limit-exceeded: the message has 1048577 bytes; 1048576 is the limit, send it in parts';
    assert.deepEqual(terminal(events)?.data.output, { alone: fault, faults: [fault] });
    const sizes = events.flatMap(({ event, data }) => (event === 'message' ? [data.text.length] : []));
    assert.deepEqual(sizes, ['first'.length, 700_000, 700_000, 'last'.length]);
  });

  it('sends and lists files', async () => {
    assert.deepEqual(await call(platform, 'library-io', { what: 'files' }), {
      text: 'grün',
      mediaType: 'text/plain; charset=utf-8',
      list: [
        { name: 'data.bin', mediaType: 'application/x-data', size: 3 },
        { name: 'notes.txt', mediaType: 'text/plain; charset=utf-8', size: 5 },
      ],
    });
  });
});
