import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { silentLog } from '#scheduler/testing/log.ts';
import { freePort } from '../local/platform.ts';
import { serve } from '../node/http/server.ts';
import { runPie } from '../testing/pie.ts';
import { componentBytes, GatewayPlatform } from '../testing/platform.ts';
import { EXIT } from './failure.ts';

const BIN = fileURLToPath(new URL('bin.js', import.meta.url));

describe('releases on the command line:', () => {
  let platform: GatewayPlatform;
  let folder: string;
  before(async () => {
    platform = await GatewayPlatform.start();
    folder = mkdtempSync(path.join(os.tmpdir(), 'pie-releases-'));
    platform.build = () => ({
      ok: true,
      artifact: {
        buildMs: 812,
        checkMs: 90,
        transpileMs: 700,
        coldStartMs: 41.2,
        warmStartMs: 0.021,
        moduleBytes: 2e6,
      },
    });
  });
  after(async () => {
    await platform.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  interface Ended {
    readonly code: number | null;
    readonly stdout: string;
    readonly stderr: string;
  }
  const pie = (...args: string[]) => runPie(platform, args);
  /**
   * Runs a command in a process of its own: for commands that get a signal or ask for confirmation.
   *
   * @param onStderr called after each write of the command to its standard error, with the whole text so far
   */
  function spawnPie(
    args: readonly string[],
    onStderr: (text: string, child: ChildProcess) => void = () => undefined,
    url = platform.url,
  ): Promise<Ended> {
    const env = { ...process.env, PIE_URL: url, PIE_API_KEY: platform.apiKey };
    const child = spawn(process.execPath, [BIN, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 240_000 });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
      onStderr(stderr, child);
    });
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })));
  }
  async function ok(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await pie(...args);
    assert.equal(code, EXIT.ok, stderr);
    return stdout;
  }
  /** Writes a component and its manifest, and returns their folder. */
  function source(content: string, manifest: object): string {
    writeFileSync(path.join(folder, 'story.wasm'), componentBytes(content));
    writeFileSync(path.join(folder, 'pie.json'), JSON.stringify({ name: 'story', main: 'story.wasm', ...manifest }));
    return folder;
  }

  it('deploy waits while the tenant has as many builds as it may have', async () => {
    let builds = 0;
    const { build } = platform;
    platform.build = () => {
      builds++;
      return builds === 1
        ? { ok: false, code: 'too-many-requests', message: 'the tenant has enough', hint: 'wait' }
        : { ok: true, artifact: {} };
    };
    await ok('deploy', source('waits', { name: 'waits' }));
    assert.equal(builds, 2);
    platform.build = build;
    await ok('remove', 'waits');
  });

  it('deploy --upgrading skips or waits while a runtime of another release takes invocations', async () => {
    // A runtime that names no contract counts as one of another release.
    const runtime = { name: 'earlier', slots: 1 };
    const lease = await platform.scheduler.runtimes.acquire(runtime);
    const target = source('0', {});
    const skipped = await pie('deploy', target, '--upgrading', 'skip');
    assert.equal(skipped.code, EXIT.upgrading, skipped.stderr);
    assert.match(skipped.stderr, /another release .*: earlier\. Nothing was deployed/);
    assert.equal((await platform.client().functions()).length, 0);
    // The gateway restarts while the command waits.
    const port = await freePort();
    const first = await serve(platform.control, { log: silentLog, host: '127.0.0.1', port });
    const [waitAnnounced, outageAnnounced] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const onText = (text: string) => {
      if (text.includes('Waiting until they are upgraded.')) waitAnnounced.resolve();
      if (text.includes('cannot be listed now')) outageAnnounced.resolve();
    };
    const { apiKey } = platform;
    const waiting = runPie({ url: first.url, apiKey }, ['deploy', target, '--upgrading', 'wait', '--dry-run'], onText);
    const endedEarly = waiting.then(({ stderr }) => assert.fail(`the command did not wait: ${stderr}`));
    endedEarly.catch(() => undefined);
    await Promise.race([waitAnnounced.promise, endedEarly]);
    await first.close(0);
    await Promise.race([outageAnnounced.promise, endedEarly]);
    const second = await serve(platform.control, { log: silentLog, host: '127.0.0.1', port });
    await lease.release();
    assert.match((await waiting).stdout, /version +would be a new one/);
    await second.close(0);
    const draining = await platform.scheduler.runtimes.acquire({ ...runtime, accepting: false });
    assert.equal((await pie('deploy', target, '--upgrading', 'skip', '--dry-run')).code, EXIT.ok);
    await draining.release();
  });

  it('deploy ends as interrupted at Ctrl-C while it waits for an upgrade', async () => {
    const earlier = createServer((_request, response) => response.end('{"otherContracts":["other"]}'));
    await once(earlier.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(earlier.address() as AddressInfo).port}`;
    let isWaiting = false;
    const interrupt = (text: string, child: ChildProcess) => {
      if (!isWaiting && text.includes('Waiting until they are upgraded.')) isWaiting = child.kill('SIGINT');
    };
    const { code, stderr } = await spawnPie(['deploy', source('0', {}), '--upgrading', 'wait'], interrupt, url);
    assert.equal(code, EXIT.interrupted, stderr);
    assert.doesNotMatch(stderr, /error:/);
    earlier.close();
  });

  it('deploy stores a message and a tag and shows measurements, and --dry-run stores nothing', async () => {
    const planned = await pie('deploy', source('1', { limits: { pages: 4 } }), '--dry-run');
    assert.equal(planned.code, EXIT.ok, planned.stderr);
    assert.match(planned.stdout, /version +would be a new one\n {2}serves +live: would serve/);
    assert.equal((await platform.client().functions()).length, 0);
    const first = await ok('deploy', folder, '--message', 'the first', '--tag', 'v1');
    assert.match(
      first,
      /build +built in 812 ms \(check 90 ms, transpile 700 ms\)\n {2}start +cold 41 ms, warm 0\.021 ms/,
    );
    assert.match(first, /serves +live [0-9a-f]{12}\n {2}may +uses every model/);
    const changed = await pie('deploy', source('2', { limits: { pages: 9000 }, grants: { store: true } }), '--dry-run');
    assert.match(changed.stdout, /~ component: .*\n {2}\+ grants\.store: true\n {2}~ limits\.pages: 4 → 9000/);
    assert.match(changed.stderr, /warning: limits\.pages is 9000/);
    await ok('deploy', folder, '--message', 'the second');
    assert.match(
      (await pie('deploy', source('3', {}), '--tag', 'v1')).stderr,
      /"v1" already names version[\s\S]*conflict/,
    );
    const versions = await ok('versions', 'story');
    assert.match(
      versions,
      /VERSION +ALIASES +SIZE +ENGINE +DEPLOYED +BY +MESSAGE\n[0-9a-f]+ +live +.* key_\w+ +the second\n[0-9a-f]+ +v1 +.* the first/,
    );
  });

  it("deploy --latency states targets in place of the manifest's", async () => {
    const deployedLatency = async (...flags: string[]) => {
      const latency = { firstTokenMs: 700, perTokenMs: 70 };
      const { version } = JSON.parse(await ok('deploy', source('1', { name: 'timed', latency }), '--json', ...flags));
      return (await platform.client().function(`timed@${version}`)).manifest.latency;
    };
    assert.deepEqual(await deployedLatency(), { firstTokenMs: 700, perTokenMs: 70 });
    assert.deepEqual(await deployedLatency('--latency', '300,40'), { firstTokenMs: 300, perTokenMs: 40 });
    assert.equal(await deployedLatency('--latency', 'none'), false);
    const wrong = await Promise.all(
      ['300', '300,40,5', '1.5,2', '0,40'].map((targets) => pie('deploy', folder, '--latency', targets)),
    );
    for (const { code, stderr } of wrong.slice(0, 3)) {
      assert.equal(code, EXIT.usage);
      assert.match(stderr, /two numbers of milliseconds/);
    }
    assert.match(wrong[3]?.stderr ?? '', /latency\.firstTokenMs must be .* from 1 to 60000/);
    await ok('remove', 'timed');
  });

  it('deploy prints the notes and warnings of several functions, one per line', async () => {
    const folders = ['one', 'two'].map((name) => {
      const functionFolder = path.join(folder, name);
      mkdirSync(functionFolder);
      writeFileSync(path.join(functionFolder, 'a.wasm'), componentBytes(name));
      writeFileSync(
        path.join(functionFolder, 'pie.json'),
        JSON.stringify({ name, main: 'a.wasm', limits: { pages: 9000 } }),
      );
      return functionFolder;
    });
    const noted = path.join(folder, 'noted.ts');
    // The program waits for a value that only a run computes, so the build cannot trace it.
    writeFileSync(
      noted,
      `import { choice, program } from '@pie/inferlet/workflow';
const app = program('noted', async (session) => {
  const grade = choice([' A', ' B']);
  session.state().add\`\${grade}\`;
  return { said: await session.read(grade) };
});
export const run = async () => app.name;
`,
    );
    for (const more of [['--dry-run'], []]) {
      const { code, stderr } = await pie('deploy', ...folders, ...more);
      assert.equal(code, EXIT.ok, stderr);
      const [, printedWarnings = ''] = stderr.split(/^(?:Checked|Deployed) 2 functions.*\n/m);
      assert.match(printedWarnings, /^warning: one: limits\.pages is 9000.*\nwarning: two: limits\.pages is 9000.*\n$/);
    }
    const { stderr } = await pie('deploy', path.join(folder, 'one'), noted);
    assert.match(stderr, /^Deployed 2 functions.*\nnote: noted: The program "noted" cannot be traced .*\nwarning: /m);
    for (const name of ['one', 'two', 'noted']) await ok('remove', name);
  });

  it('alias splits traffic, rollback shows the changes first, and remove lists draining versions', async () => {
    const [second, first] = JSON.parse(await ok('versions', 'story', '--json')).map(
      (v: { version: string }) => v.version,
    );
    const set = await ok('alias', 'set', 'story', 'live', `${second.slice(0, 6)}=90`, 'v1=10', '-m', 'carefully');
    assert.match(set, new RegExp(`story@live serves ${second} 90 %, ${first} 10 % `));
    assert.match(await ok('list'), new RegExp(`story +${second} 90 %, ${first} 10 %`));
    assert.match(await ok('alias', 'list', 'story'), /live +.*carefully\nv1 \(tag\)/);
    assert.equal((await pie('alias', 'set', 'story', 'live', '3f2a=90', '9c1b')).code, EXIT.usage);
    assert.match((await pie('alias', 'set', 'story', 'live', `${second}=90`)).stderr, /sum to 100; these sum to 90/);
    await ok('rollback', 'story', '--yes');
    const asked = await spawnPie(['rollback', 'story']);
    assert.equal(asked.code, EXIT.usage);
    assert.match(
      asked.stdout,
      new RegExp(`story@live: ${second} → ${first}\\n {2}~ component: .*\\n {2}- grants\\.store: true`),
    );
    assert.match(
      await ok('rollback', 'story', '--yes', '-m', 'worse'),
      new RegExp(`Rolled back: story@live serves ${first}`),
    );
    assert.match(await ok('alias', 'list', 'story', 'live'), /worse \(back to revision \d+\)/);
    assert.match(
      (await pie('rollback', 'story', '--yes')).stderr,
      /no record of an earlier version[\s\S]*--to VERSION/,
    );

    const { id } = await platform.client().submit('story', {});
    for (let i = 0; i < 2; i++) await platform.scheduler.quarantine.noteLoss(id, true);
    assert.match(await ok('list'), /story .*\(quarantined\)/);
    assert.match((await pie('invoke', 'story')).stderr, /is quarantined: twice within[\s\S]*pie quarantine lift NAME/);
    assert.match(
      await ok('quarantine', 'lift', 'story'),
      new RegExp(`Lifted the quarantine of 1 version of story: ${first}`),
    );
    assert.equal(await ok('quarantine', 'lift', 'story'), 'No version of story is quarantined.\n');
    assert.match((await pie('remove', `story@${first}`)).stderr, /is served by `live`, `v1`/);
    assert.match(await ok('remove', 'story', '--no-wait'), /Removed story; draining: 1 invocation\./);
    const draining = await platform.client().draining('story');
    assert.deepEqual(draining, [{ version: first, unfinished: 1 }]);
    const waited = await pie('remove', 'story', '--now');
    assert.equal(waited.code, EXIT.ok, waited.stderr);
    assert.equal((await platform.client().invocation(id)).status, 'cancelled');
    assert.match((await pie('remove', 'story')).stderr, /no function "story"/);
  });
});
