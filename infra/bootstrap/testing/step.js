// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { environment } from '../run.js';
import { endedCpuSeconds } from './cpu-time.js';

/** Matches test files, and patterns for test files, on a command line. */
const TEST_FILE = /\.test\.[cm]?[jt]s$/;

/**
 * Runs one step of the tests under the pinned Node, in a process group of its own, and kills the group when `deadline` aborts. The
 * platforms that the tests started then end through their lifelines.
 * @param {string} root the clone
 * @param {string} node the pinned Node
 * @param {string[]} args
 * @param {AbortSignal} deadline
 * @param {number | 'inherit'} [output] descriptor of the file that takes the step's output; by default this process's output takes it
 * @param {Readonly<Record<string, string>>} [variables] further environment variables
 * @returns {Promise<{ code: number, unfinished: string[] | null, cpuSeconds: number }>} exit code, and the test files that still ran at the kill
 */
export async function runStep(root, node, args, deadline, output = 'inherit', variables = {}) {
  const child = spawn(node, args, {
    cwd: root,
    detached: true,
    env: { ...environment(root), ...variables },
    stdio: ['inherit', output, output],
  });
  // A detached child leads a process group that has the child's id.
  const group = child.pid;
  /** @type {string[] | null} */
  let unfinished = null;
  /** @param {NodeJS.Signals} signal */
  const send = (signal) => {
    if (group === undefined) return;
    try {
      process.kill(-group, signal);
    } catch {
      // The group is gone already.
    }
  };
  const onDeadline = () => {
    unfinished = runningTests(group ?? 0);
    send('SIGKILL');
  };
  const removeHandlers = /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']).map((signal) => {
    const handler = () => send(signal);
    process.on(signal, handler);
    return () => process.off(signal, handler);
  });
  deadline.addEventListener('abort', onDeadline, { once: true });
  try {
    return await new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (code) => resolve({ code: code ?? 1, unfinished, cpuSeconds: endedCpuSeconds() }));
    });
  } finally {
    deadline.removeEventListener('abort', onDeadline);
    for (const removeHandler of removeHandlers) removeHandler();
  }
}

/**
 * The test files on the command lines of a group's processes, read from `/proc`; Node starts one process for each file.
 * @param {number} group
 * @returns {string[]}
 */
function runningTests(group) {
  const files = new Set();
  const patterns = new Set();
  for (const entry of readdirSync('/proc')) {
    const pid = Number(entry);
    if (!Number.isInteger(pid)) continue;
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const [, , processGroup] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (Number(processGroup) !== group) continue;
      const named = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
        .split('\0')
        .filter((word) => TEST_FILE.test(word));
      for (const word of named) (pid === group ? patterns : files).add(word);
    } catch {
      // The process ended meanwhile.
    }
  }
  // A step that runs all files in one process has no processes of files. Its only command line is that of the runner, with the patterns.
  return [...(files.size > 0 ? files : patterns)];
}
