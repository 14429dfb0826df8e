import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { isAlive, newHome, Platform, until } from '#test/harness/platform.ts';
import { checkEnded, messageCount, watch } from './invocations.ts';
import { startPlatform } from './kill-runs.ts';
import { platformProcesses, signalAll } from './processes.ts';

const RUNNING = 4;
/** The invocation sends four tokens and then waits for its client. */
const INPUT = { tokens: 8, listenAt: 4 };

/** Waits until Redis has written all acknowledged data to the operating system. */
async function untilWritten(platform: Platform): Promise<void> {
  const redis = connectRedis(loadConfig(platform.environment));
  try {
    await until('Redis has written everything', async () => {
      const info = await redis.info('persistence');
      return /aof_buffer_length:0\r/.test(info) && /aof_pending_bio_fsync:0\r/.test(info);
    });
  } finally {
    redis.disconnect();
  }
}

/** Kills all processes at once, as a loss of power does. Stops them first, so that no process outlives another and reports its loss to clients. */
function killAtOnce(pids: readonly number[]): void {
  for (const name of ['SIGSTOP', 'SIGKILL'] as const) signalAll(pids, name);
}

test('after a SIGKILL of the supervisor no process is left, not even those that build functions in the background', async () => {
  // A home with artifacts of its own: those that tests share hold every bundled function, so that nothing would be built.
  const home = await mkdtemp(path.join(os.tmpdir(), 'pie-'));
  await using platform = await Platform.start({ home, functions: 'all' });
  const deployerAndBuild = ['gateway/cli/bin.js', 'runtime/pool/evaluate-main.ts'];
  await until('a function is being built, and stopped', () => {
    const pids = platformProcesses(platform.supervisorPid);
    // The shells that watch the lifelines of these programs have the same words, and must go on.
    const isProgram = (line: string) => !line.startsWith('/bin/sh');
    const found = deployerAndBuild.map(
      (text) => pids.findLast((pid) => commandLine(pid).includes(text) && isProgram(commandLine(pid))) ?? 0,
    );
    if (found.includes(0)) return false;
    // A stopped process cannot end by itself, for example because the gateway is gone.
    signalAll(found, 'SIGSTOP');
    const areThere = found.every(isAlive);
    if (!areThere) signalAll(found, 'SIGCONT');
    return areThere;
  });
  const pids = platformProcesses(platform.supervisorPid);
  await platform.kill();
  await until('all processes have ended', () => !pids.some(isAlive));
});

/** Command line of a process, its words separated by zero bytes; empty when the process has ended. */
function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

test('after a SIGKILL of every process and a restart, invocations end as runtime-lost and new ones succeed', async () => {
  const home = await newHome();
  try {
    await using first = await startPlatform({ home, keepHome: true });
    const running = await Promise.all(
      Array.from({ length: RUNNING }, (_, i) => watch(first, { mark: `run-${i}`, ...INPUT }, { restartable: false })),
    );
    await until('all invocations run', () => running.every((each) => messageCount(each) === INPUT.listenAt));
    await untilWritten(first);
    const pids = platformProcesses(first.supervisorPid);
    killAtOnce(pids);
    await until('all processes have ended', () => !pids.some(isAlive));

    await using second = await Platform.start({ home, keepHome: true, port: first.port, functions: false });
    for (const each of running) {
      await each.ended;
      assert.equal(await checkEnded(second, each), 'runtime-lost');
    }
    const next = await watch(second, { mark: 'next', tokens: 4 }, { restartable: false });
    await next.ended;
    assert.equal(await checkEnded(second, next), 'result');
  } finally {
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
});
