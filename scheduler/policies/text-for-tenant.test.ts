import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { failureReporter, textForTenant } from './text-for-tenant.ts';

describe('the text of an error for a tenant', () => {
  /** A path with a quote, a space and a comma, which could end it in a text. */
  const home = mkdtempSync(path.join(tmpdir(), "pie's home, told-"));
  after(() => rmSync(home, { recursive: true }));
  const thrown = (act: () => unknown): Error => {
    try {
      act();
    } catch (error) {
      assert.ok(error instanceof Error && error.message.includes(home), 'the error names the path');
      return error;
    }
    throw new Error('it did not fail');
  };

  it('the text of a file error has the code, its meaning and the operation, and no path', () => {
    const missing = path.join(home, 'no', 'file');
    assert.equal(textForTenant(thrown(() => readFileSync(missing))), 'ENOENT: no such file or directory, open');
    assert.equal(
      textForTenant(thrown(() => renameSync(missing, `${missing}2`))),
      'ENOENT: no such file or directory, rename',
    );
    const file = path.join(home, 'file');
    writeFileSync(file, '');
    assert.equal(textForTenant(thrown(() => readFileSync(path.join(file, 'x')))), 'ENOTDIR: not a directory, open');
    chmodSync(file, 0);
    if (process.getuid?.() !== 0)
      assert.equal(textForTenant(thrown(() => readFileSync(file))), 'EACCES: permission denied, open');
  });

  it('the text of an error of a program or a socket has the operation and the code, and no path', async () => {
    const [spawned] = await once(spawn(path.join(home, 'program')), 'error');
    assert.equal(textForTenant(spawned), 'spawn ENOENT');
    const [refused] = await once(connect(path.join(home, 'socket')), 'error');
    assert.equal(textForTenant(refused), 'connect ENOENT');
  });

  it('in other texts a path becomes the name of its file, and text that only looks like a path stays', () => {
    const texts = [
      ['/srv/pie home is missing', 'pie home is missing'],
      [
        "/srv/models/tiny/tokenizer.json cannot be read: ENOENT, stat '/srv/models/tiny'",
        "tokenizer.json cannot be read: ENOENT, stat 'tiny'",
      ],
      [
        "Cannot find module 'file:///srv/pie/a.js' imported from /srv/pie/b.js",
        "Cannot find module 'a.js' imported from b.js",
      ],
      ['PATH=/srv/pie/bin:/srv/pie/tools', 'PATH=bin:tools'],
      ['libgpu.so:/srv/pie/libgpu.so', 'libgpu.so:libgpu.so'],
      ['https://example.com/a/b.json answered 404', 'https://example.com/a/b.json answered 404'],
      ['12 tokens/s and/or a/b/c', '12 tokens/s and/or a/b/c'],
      ['expected </b>, found <a/>', 'expected </b>, found <a/>'],
    ] as const;
    for (const [text, expected] of texts) assert.equal(textForTenant(new Error(text)), expected);
    assert.equal(textForTenant('/srv/pie/home'), 'home');
    // An error of Node.js itself has a code and no operation.
    const invalid = Object.assign(new Error('/srv/pie/a.js is invalid'), { code: 'ERR_INVALID_ARG_VALUE' });
    assert.equal(textForTenant(invalid), 'a.js is invalid');
  });
});

it('a repeated failure is logged once, even when another failure is logged in between', () => {
  const logged: unknown[] = [];
  const unexpected = failureReporter((caught) => logged.push(caught));
  const [disk, bug] = [new Error('/srv/pie/a.bin is damaged'), new Error('a bug')];
  assert.deepEqual([disk, disk, bug, disk].map(unexpected), [
    'a.bin is damaged',
    'a.bin is damaged',
    'a bug',
    'a.bin is damaged',
  ]);
  assert.deepEqual(logged, [disk, bug]);
});

it('a failure is logged again after ten seconds, or after a hundred other failures', (t) => {
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  let logCount = 0;
  const unexpected = failureReporter(() => logCount++);
  const isLogged = (text: string) => {
    const before = logCount;
    unexpected(new Error(text));
    return logCount > before;
  };
  assert.ok(isLogged('disk'));
  nowMs = 9999;
  assert.ok(!isLogged('disk'));
  assert.ok(isLogged('bug'));
  nowMs = 10_000;
  assert.ok(isLogged('disk'));
  // 100 texts are remembered: `disk`, `bug` and 98 others.
  for (let i = 0; i < 98; i++) assert.ok(isLogged(`fault ${i}`));
  assert.ok(!isLogged('bug'));
  // One more replaces `bug`, which was logged longest ago.
  assert.ok(isLogged('fault 98'));
  assert.ok(!isLogged('disk'));
  assert.ok(isLogged('bug'));
});
