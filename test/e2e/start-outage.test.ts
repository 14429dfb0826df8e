import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import readline from 'node:readline';
import { describe, it } from 'node:test';
import { EXIT } from '#gateway/cli/failure.ts';
import { UNREACHABLE_EXIT, UPGRADING_EXIT } from '#infra/bundled.ts';
import { LIFELINE_VARIABLE } from '#infra/lifeline.ts';
import { freePort, newHome, ROOT } from '#test/harness/platform.ts';

const FUNCTIONS = ['echo-session', 'text-completion'];

describe('a platform whose gateway dies during its first start', () => {
  it('knows the exit codes of `pie deploy`', () => {
    assert.deepEqual([UNREACHABLE_EXIT, UPGRADING_EXIT], [EXIT.unreachable, EXIT.upgrading]);
  });

  it('comes up with all functions', async () => {
    const home = await newHome();
    const port = await freePort();
    const supervisor = spawn(
      process.execPath,
      ['infra/up.ts', '--json', '--no-proof', '--functions', FUNCTIONS.join()],
      {
        cwd: ROOT,
        env: {
          ...process.env,
          NODE_OPTIONS: '',
          PIE_HOME: home,
          PIE_PORT: String(port),
          PIE_MODEL: 'stories15m',
          PIE_THREADS: '1',
          [LIFELINE_VARIABLE]: 'stdin',
        },
        stdio: ['pipe', 'pipe', 'pipe'],
      },
    );
    const ended = once(supervisor, 'close');
    try {
      let gateway = 0;
      let isDeploying = false;
      let kills = 0;
      let errors = '';
      const kill = () => {
        kills++;
        process.kill(gateway, 'SIGKILL');
      };
      supervisor.stderr.setEncoding('utf8').on('data', (text: string) => {
        errors += text;
        // `pie deploy` says so before it builds; the components then meet a gateway that is dead.
        if (isDeploying || !text.includes('Deploying 2 functions')) return;
        isDeploying = true;
        kill();
      });
      let servesWith: Record<string, number> | undefined;
      for await (const text of readline.createInterface({ input: supervisor.stdout })) {
        const line = JSON.parse(text);
        if (line.kind === 'ready' && line.name === 'gateway') {
          gateway = line.pid;
          // Until a try has failed: a gateway may be back before the first component is built.
          if (isDeploying && !errors.includes('error:')) kill();
        }
        if (line.kind === 'serving') {
          servesWith = line.pids;
          break;
        }
      }
      assert.ok(servesWith !== undefined, errors);
      assert.ok(kills > 0);
      assert.match(errors, /error: (echo-session|text-completion): /, 'a try failed');
      const ready = await fetch(`http://127.0.0.1:${port}/readyz`);
      assert.equal(ready.status, 200, await ready.text());
    } finally {
      supervisor.kill('SIGINT');
      await ended;
      await rm(home, { recursive: true, force: true, maxRetries: 10 });
    }
  });
});
