// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { closeSync, createReadStream, existsSync, openSync, readFileSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { runStep } from './step.js';

/**
 * Runs the lane of a step, and the lanes of `beside` at the same time. A lane is a step and the chain of its `next` steps; a step that does not
 * pass ends its lane. Resolves when all lanes have ended. The first lane prints as it runs; the output of each other lane follows as a
 * whole. The failed tests are printed again at the end, because the output of other lanes may follow them.
 * @param {string} root the clone
 * @param {string} node the pinned Node
 * @param {import('./steps.js').Step} step
 * @returns {Promise<boolean>} true when all steps passed
 */
export async function runLanes(root, node, step) {
  const folder = await mkdtemp(path.join(tmpdir(), 'pie-steps-'));
  const failures = path.join(folder, 'failures');
  // `report.ts` appends each failed test to this file.
  process.env.PIE_TEST_FAILURES = failures;
  try {
    const otherLanes = (step.beside ?? []).map((first, i) => runLane(root, node, first, path.join(folder, `${i}`)));
    let passed = true;
    /** @type {import('./steps.js').Step | undefined} */
    let current = step;
    while (current && passed) {
      const { title, next } = current;
      console.log(`\n== ${title}`);
      passed = report(current, await runOne(root, node, current));
      current = next;
    }
    for (const lane of otherLanes) {
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
async function runOne(root, node, { minutes, args, files = [], variables }, output) {
  const startMs = performance.now();
  const deadline = AbortSignal.timeout(minutes * 60_000);
  const result = await runStep(root, node, [...args, ...files], deadline, output, variables);
  return { ...result, seconds: Math.round((performance.now() - startMs) / 1000) };
}

/**
 * Runs a lane and writes the output of each of its steps to a file.
 * @param {string} root
 * @param {string} node
 * @param {import('./steps.js').Step} step
 * @param {string} prefix prefix of the files' paths
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
 * @returns {boolean} true when the step passed
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
