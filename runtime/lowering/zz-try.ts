import { componentize } from 'componentize-qjs';
import { transpileBytes } from '@bytecodealliance/jco-transpile';
import fs from 'node:fs';
const [, , src, out] = process.argv as string[];
const c = await componentize({ witPath: '/work/main/wit', jsSource: fs.readFileSync(src!, 'utf8'), world: 'inferlet', stubWasi: true });
const r = await transpileBytes(c.component, { name: 'app', instantiation: 'async', asyncMode: 'jspi', asyncExports: ['run'] , emitTypescriptDeclarations:false});
fs.mkdirSync(out!, { recursive: true });
for (const [k, v] of Object.entries(r.files)) { fs.mkdirSync(`${out}/${k}`.replace(/\/[^/]*$/, ''), { recursive: true }); fs.writeFileSync(`${out}/${k}`, v); }
fs.writeFileSync(`${out}/package.json`, '{"type":"module"}');
console.log(Object.keys(r.files).length, r.imports);
