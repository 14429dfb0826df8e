import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { IsolationError, layersFor, type Probe } from './layers.ts';
import { probeMachine } from './probe.ts';

const SETPRIV = ['/usr/bin/setpriv', '--no-new-privs'];
const EVERYTHING: Probe = { bubblewrap: { command: ['/usr/bin/bwrap', '--unshare-all'] }, setpriv: SETPRIV };
const NO_NAMESPACES: Probe = { bubblewrap: { missing: 'it ended with 1' }, setpriv: SETPRIV };
const NOTHING: Probe = { bubblewrap: { missing: 'it ended with 1' }, setpriv: null };

const machine = await probeMachine();

describe('layers', () => {
  it('are namespaces where they work, without a notice', () => {
    for (const isolation of ['auto', 'namespaces'] as const) {
      const { notice, wrapper, ...rest } = layersFor(isolation, EVERYTHING);
      assert.deepEqual([rest.isolation, notice, wrapper[0]], ['namespaces', null, '/usr/bin/bwrap']);
    }
  });

  it('are those of the process on request, even where namespaces work', () => {
    assert.deepEqual(layersFor('process', EVERYTHING), { isolation: 'process', wrapper: SETPRIV, notice: null });
  });

  it('are those of the process where namespaces do not work, with a notice about the reason and advice', () => {
    const { isolation, notice } = layersFor('auto', NO_NAMESPACES);
    assert.equal(isolation, 'process');
    assert.match(notice ?? '', /without namespaces: it ended with 1\. .*signals.*install bubblewrap/s);
    assert.match(layersFor('auto', NOTHING).notice ?? '', /Also, setpriv .* is missing/);
    assert.match(layersFor('process', NOTHING).notice ?? '', /setpriv .* is missing/);
  });

  it('are refused when namespaces are required and do not work', () => {
    assert.throws(
      () => layersFor('namespaces', NO_NAMESPACES),
      (error) =>
        error instanceof IsolationError &&
        /demands isolation = "namespaces".*it ended with 1.*isolation = "auto"/s.test(error.message),
    );
  });
});

describe('a machine without user namespaces', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pie-probe-'));
  });
  after(() => rm(folder, { recursive: true }));

  /** Makes a program that fails like bubblewrap when the kernel refuses namespaces. */
  async function makeRefusingBwrap(): Promise<string> {
    const program = join(folder, 'bwrap');
    await writeFile(program, '#!/bin/sh\necho "bwrap: No permissions to create a new namespace" >&2\nexit 1\n');
    await chmod(program, 0o755);
    return program;
  }

  it('is detected by a trial, and starts with the layers of the process', async () => {
    const probe = await probeMachine({ bubblewrap: await makeRefusingBwrap() });
    assert.match('missing' in probe.bubblewrap ? probe.bubblewrap.missing : '', /No permissions to create/);
    const { isolation, notice } = layersFor('auto', probe);
    assert.equal(isolation, 'process');
    assert.match(notice ?? '', /No permissions to create a new namespace/);
  });

  it('does not start when namespaces are required', async () => {
    const probe = await probeMachine({ bubblewrap: await makeRefusingBwrap() });
    assert.throws(() => layersFor('namespaces', probe), /No permissions to create a new namespace/);
  });

  const skip = !('command' in machine.bubblewrap) && 'bubblewrap cannot run here';
  it('is not confused with an older bubblewrap that lacks options', { skip }, async () => {
    const real = 'command' in machine.bubblewrap ? machine.bubblewrap.command[0] : '';
    const program = join(folder, 'old-bwrap');
    const script = `for arg; do [ "$arg" = --disable-userns ] && { echo "bwrap: Unknown option" >&2; exit 1; }; done`;
    await writeFile(program, `#!/bin/sh\n${script}\nexec ${real} "$@"\n`);
    await chmod(program, 0o755);
    const { isolation, wrapper } = layersFor('auto', await probeMachine({ bubblewrap: program }));
    assert.deepEqual([isolation, wrapper.includes('--disable-userns')], ['namespaces', false]);
  });

  it('may lack bubblewrap and setpriv', async () => {
    const probe = await probeMachine({ bubblewrap: join(folder, 'none'), setpriv: join(folder, 'none') });
    assert.deepEqual(probe.setpriv, null);
    assert.match(layersFor('auto', probe).notice ?? '', /is not installed/);
  });
});
