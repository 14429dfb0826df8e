// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { closeSync, createReadStream, existsSync, openSync, readFileSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { runStep } from './step.js';

/**
 * Runs the lane of a step and the lanes beside it at the same time, and resolves when all of them have ended. The first lane prints as it
 * goes; the output of the others follows, so that no lines mix. A step that fails, or that a signal ends, ends its lane.
 * The failed tests are printed again at the end, because the output of other lanes may follow them.
 * @param {string} root the clone
 * @param {string} node the pinned Node
 * @param {import('./steps.js').Step} step
 * @returns {Promise<boolean>} whether all of them passed
 */
export async function runLanes(root, node, step) {
  const folder = await mkdtemp(path.join(tmpdir(), 'pie-steps-'));
  const failures = path.join(folder, 'failures');
  // `report.ts` appends each failed test to this file.
  process.env.PIE_TEST_FAILURES = failures;
  try {
    const held = (step.beside ?? []).map((first, i) => runLane(root, node, first, path.join(folder, `${i}`)));
    let passed = true;
    /** @type {import('./steps.js').Step | undefined} */
    let own = step;
    while (own && passed) {
      const { title, next } = own;
      console.log(`\n== ${title}`);
      passed = report(own, await runOne(root, node, own));
      own = next;
    }
    for (const lane of held) {
      for (const { step: other, file, result } of await lane) {
        console.log(`\n== ${other.title}`);
        await pipeline(createReadStream(file), process.stdout, { end: false });
        passed = report(other, result) && passed;
      }
    }
    if (existsSync(failures)) console.error(`\n== Failed tests\n${readFileSync(failures, 'utf8')}`);
    return passed;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @typedef {{ code: number, unfinished: string[] | null, seconds: number, cpuSeconds: number }} Result */

/**
 * @param {string} root
 * @param {string} node
 * @param {import('./steps.js').Step} step
 * @param {number | 'inherit'} [output]
 * @returns {Promise<Result>}
 */
async function runOne(root, node, { minutes, args, files = [] }, output) {
  const from = performance.now();
  const result = await runStep(root, node, [...args, ...files], AbortSignal.timeout(minutes * 60_000), output);
  return { ...result, seconds: Math.round((performance.now() - from) / 1000) };
}

/**
 * Runs a step, and those that follow it while they pass. Their outputs go to files.
 * @param {string} root
 * @param {string} node
 * @param {import('./steps.js').Step} step
 * @param {string} prefix of the files' paths
 * @returns {Promise<{ step: import('./steps.js').Step, file: string, result: Result }[]>}
 */
async function runLane(root, node, step, prefix) {
  const file = `${prefix}.log`;
  const output = openSync(file, 'w');
  try {
    const result = await runOne(root, node, step, output);
    const more = step.next && isPassed(result) ? await runLane(root, node, step.next, `${prefix}-next`) : [];
    return [{ step, file, result }, ...more];
  } finally {
    closeSync(output);
  }
}

/** @param {Result} result */
const isPassed = ({ code, unfinished }) => code === 0 && unfinished === null;

/**
 * Prints the cost of a step, and why it failed.
 * @param {import('./steps.js').Step} step
 * @param {Result} result
 * @returns {boolean} whether it passed
 */
function report({ title, minutes }, result) {
  const { unfinished, seconds, cpuSeconds } = result;
  console.log(`${title}: ${seconds} s, ${Math.round(cpuSeconds)} s of processor time`);
  if (unfinished !== null) {
    console.error(`\n${title}: did not end within ${minutes} minutes, and was killed. Tests that still ran:`);
    console.error(unfinished.map((file) => `  ${file}`).join('\n') || '  none');
  }
  const passed = isPassed(result);
  if (!passed) console.error(`\n${title}: failed.`);
  return passed;
}
