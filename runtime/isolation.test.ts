import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { IsolationError } from './sandboxes/index.ts';
import { RuntimePlatform } from './testing/platform.ts';

const ECHO = 'export async function run(input) { return JSON.stringify(input.length); }';

describe('a runtime on a machine without user namespaces', () => {
  let platform: RuntimePlatform;
  let folder: string;
  const { PATH = '' } = process.env;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pie-path-'));
    // This `bwrap` fails as the real one does on such a machine.
    const bubblewrap = join(folder, 'bwrap');
    await writeFile(bubblewrap, '#!/bin/sh\necho "bwrap: setting up uid map: Permission denied" >&2\nexit 1\n');
    await chmod(bubblewrap, 0o755);
    process.env.PATH = `${folder}${delimiter}${PATH}`;
    platform = await RuntimePlatform.start({ runtime: { artifactsDirectory: join(folder, 'artifacts') } });
  });
  after(async () => {
    process.env.PATH = PATH;
    await platform.stop();
    await rm(folder, { recursive: true });
  });

  it('starts with isolation by processes alone, and reports that', async () => {
    const [runtime] = await platform.scheduler.runtimes.list();
    assert.equal(runtime?.isolation?.layers, 'process');
    assert.match(runtime?.isolation?.notice ?? '', /without namespaces: .*setting up uid map: Permission denied/);
  });

  it('builds, inspects and runs a deployed function', async () => {
    const version = await platform.deploy(ECHO);
    assert.ok(Number(version.build?.coldStartMs) > 0);
    const { end } = await platform.invoke(version, 'abc');
    // The input is the JSON text of 'abc', of 5 characters.
    assert.deepEqual([end.event, end.data.output], ['result', 5]);
  });

  it('does not start when namespaces are required, and leaves no registration', async () => {
    const starting = platform.startRuntime({ name: 'runtime-strict', isolation: 'namespaces' });
    await assert.rejects(
      starting,
      (error) => error instanceof IsolationError && /Permission denied/.test(error.message),
    );
    const names = (await platform.scheduler.runtimes.list()).map(({ name }) => name);
    assert.deepEqual(names, ['runtime-test']);
  });
});
