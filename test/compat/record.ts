/**
 * Records a component of a released contract version, and its answers:
 * `node test/compat/record.ts VERSION NAME COMPONENT.wasm '[INPUT, …]'`. The first component of a version also records its contract.
 */
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';
import { contractText } from '#runtime/build/component/contract.ts';
import { call } from '../harness/deploy.ts';
import { Platform } from '../harness/platform.ts';
import { type Call, FOLDER, type Recorded, recordedCalls } from './recorded.ts';

const [version, name, component, inputs] = process.argv.slice(2);
if (!version || !name || !component || !inputs) {
  throw new Error("usage: node test/compat/record.ts VERSION NAME COMPONENT.wasm '[INPUT, …]'");
}
const folder = path.join(FOLDER, version);
const file = path.join(folder, `${name}.wasm.br`);
if (existsSync(file)) throw new Error(`${file} is there: a component is recorded once.`);

await using platform = await Platform.start({ functions: false });
const { code, stderr } = await platform.pie(['deploy', component, '--name', name]);
if (code !== 0) throw new Error(stderr);
const calls: Call[] = [];
for (const input of JSON.parse(inputs) as unknown[]) calls.push({ input, output: await call(platform, name, input) });

const bytes = await readFile(component);
const params = {
  [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
  [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
  [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
};
await mkdir(folder, { recursive: true });
await writeFile(file, await promisify(brotliCompress)(bytes, { params }));
// Keep an existing contract: the version's earlier components were built with it.
await writeFile(path.join(folder, 'contract.wit'), await contractText(), { flag: 'wx' }).catch((error: unknown) => {
  if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
});
const callsFile = path.join(folder, 'recorded.json');
const earlierCalls: Recorded = existsSync(callsFile) ? await recordedCalls(version) : {};
await writeFile(callsFile, `${JSON.stringify({ ...earlierCalls, [name]: calls }, null, 2)}\n`);
