/**
 * Prints how an artifact's core modules are linked, as one line of JSON (`PlanReply`): `node plan-main.ts ARTIFACT_DIRECTORY`. Runs untrusted
 * start functions, so `planInChild` starts it without rights.
 */
import { readdir } from 'node:fs/promises';
import { plan } from './planner.ts';

const [directory = '.'] = process.argv.slice(2);
const files = (await readdir(directory)).filter((name) => name.endsWith('.wasm'));
process.stdout.write(JSON.stringify(await plan(directory, files)), () => process.exit(0));
