/**
 * Runs one inferlet from its plan, and prints its ending as JSON: `node run-planned.ts ARTIFACT_DIRECTORY INPUT`. None of
 * this program's imports generates code from strings, so it also runs where V8 forbids such code; `refused` in the output is then true.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { compileWorld } from '../lowering/compile.ts';
import { instantiate } from '../lowering/instance.ts';
import { asPlan } from '../lowering/plan.ts';
import { SliceRunner } from '../lowering/slices.ts';
import { recordingHost } from './recording-host.ts';

const [directory = '.', input = ''] = process.argv.slice(2);
const plan = asPlan(JSON.parse(await readFile(join(directory, 'plan.json'), 'utf8')));
if (!plan) throw new TypeError('the plan is damaged');
const modules = new Map<string, WebAssembly.Module>();
for (const { module } of plan.instances) {
  if (!modules.has(module)) modules.set(module, await WebAssembly.compile(await readFile(join(directory, module))));
}
const { host, lines } = recordingHost();
const options = { slices: new SliceRunner(), cpuLimitMs: 10_000 };
const execution = instantiate({ plan, modules }, compileWorld(host), options);
const ending = await execution.start(input);
execution.dispose();
let refused = false;
try {
  new Function('return 1')();
} catch {
  refused = true;
}
console.log(JSON.stringify({ ending, calls: lines.length, refused }));
