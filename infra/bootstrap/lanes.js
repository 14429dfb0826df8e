// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { closeSync, createReadStream, openSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { runStep } from './step.js';

/**
 * Runs a step and the steps beside it at the same time, and resolves when all of them have ended. The step itself prints as it goes; the
 * output of the others follows, so that no lines mix.
 * @param {string} root the clone
 * @param {string} node the pinned Node
 * @param {import('./steps.js').Step} step
 * @returns {Promise<boolean>} whether all of them passed
 */
export async function runLanes(root, node, step) {
  const folder = await mkdtemp(path.join(tmpdir(), 'pie-steps-'));
  try {
    const held = (step.beside ?? []).map((beside, i) => {
      const file = path.join(folder, `${i}.log`);
      return { file, passed: runHeld(root, node, beside, file) };
    });
    console.log(`\n== ${step.title}`);
    let passed = report(step, await timed(() => runOne(root, node, step)));
    for (const lane of held) {
      const result = await lane.passed;
      console.log(`\n== ${result.step.title}`);
      await pipeline(createReadStream(lane.file), process.stdout, { end: false });
      passed = report(result.step, result) && passed;
    }
    return passed;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * @param {string} root
 * @param {string} node
 * @param {import('./steps.js').Step} step
 * @param {number | 'inherit'} [output]
 */
function runOne(root, node, { minutes, args, files = [] }, output) {
  return runStep(root, node, [...args, ...files], AbortSignal.timeout(minutes * 60_000), output);
}

/**
 * Runs a step whose output goes to a file.
 * @param {string} root
 * @param {string} node
 * @param {import('./steps.js').Step} step
 * @param {string} file
 */
async function runHeld(root, node, step, file) {
  const output = openSync(file, 'w');
  try {
    return { step, ...(await timed(() => runOne(root, node, step, output))) };
  } finally {
    closeSync(output);
  }
}

/**
 * @template T
 * @param {() => Promise<T>} run
 * @returns {Promise<T & { seconds: number }>}
 */
async function timed(run) {
  const from = performance.now();
  const result = await run();
  return { ...result, seconds: Math.round((performance.now() - from) / 1000) };
}

/**
 * Prints the cost of a step, and why it failed.
 * @param {import('./steps.js').Step} step
 * @param {{ code: number, unfinished: string[] | null, seconds: number, cpuSeconds: number }} result
 * @returns {boolean} whether it passed
 */
function report({ title, minutes }, { code, unfinished, seconds, cpuSeconds }) {
  console.log(`${title}: ${seconds} s, ${Math.round(cpuSeconds)} s of processor time`);
  if (unfinished !== null) {
    console.error(`\n${title}: did not end within ${minutes} minutes, and was killed. Tests that still ran:`);
    console.error(unfinished.map((file) => `  ${file}`).join('\n') || '  none');
  }
  const passed = code === 0 && unfinished === null;
  if (!passed) console.error(`\n${title}: failed.`);
  return passed;
}
