/** `node write-engine.ts FILE`: writes the component of this installation's engine, for a package that ships it. */
import { writeFile } from 'node:fs/promises';
import { ensureEngine } from './installed.ts';

const [file] = process.argv.slice(2);
if (file === undefined) throw new Error('usage: node write-engine.ts FILE');
await writeFile(file, (await ensureEngine()).component);
