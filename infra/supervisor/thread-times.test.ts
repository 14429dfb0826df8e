import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { mainThreadTimes } from './watchdog.ts';

const skip = mainThreadTimes(process.pid) === null && 'this system has no schedstat';

test('a thread that computes or waits for a core is ready; a stopped or sleeping one is not', {
  skip,
  timeout: 240_000,
}, async (t) => {
  const script = 'process.stdin.once("data", () => { for (;;); }); process.stdout.write("here")';
  const child = spawn(process.execPath, ['-e', script], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const { pid = 0 } = child;
  const becomes = async (ready: boolean) => {
    while (mainThreadTimes(pid)?.ready !== ready) {
      t.signal.throwIfAborted();
      await sleep(5);
    }
  };
  try {
    await once(child.stdout, 'data');
    await becomes(false);
    child.stdin.write('compute');
    await becomes(true);
    child.kill('SIGSTOP');
    await becomes(false);
    const stopped = mainThreadTimes(pid);
    assert.ok(stopped && stopped.computedMs > 0);
    child.kill('SIGCONT');
    await becomes(true);
  } finally {
    child.kill('SIGKILL');
    await ended;
  }
  assert.equal(mainThreadTimes(pid), null);
});
