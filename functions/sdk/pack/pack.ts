/**
 * `npm pack` and `npm publish` run this program first. It compiles the source and adds the WIT contract and its types. The
 * optional argument is the output folder.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const sdk = fileURLToPath(new URL('..', import.meta.url));
const dist = path.resolve(process.argv[2] ?? path.join(sdk, 'dist'));
const wit = path.join(sdk, '../../wit');
const tsc = path.join(sdk, '../../node_modules/typescript/bin/tsc');

rmSync(dist, { recursive: true, force: true });
execFileSync(process.execPath, [tsc, '-p', path.join(sdk, 'pack/tsconfig.json'), '--outDir', dist], {
  stdio: 'inherit',
});

// The repository has one copy of the contract; the package carries it along, as types and as WIT.
mkdirSync(path.join(dist, 'wit'));
copyFileSync(path.join(wit, 'generated/guest.d.ts'), path.join(dist, 'guest.d.ts'));
for (const file of readdirSync(wit)) {
  if (file.endsWith('.wit')) copyFileSync(path.join(wit, file), path.join(dist, 'wit', file));
}
for (const file of readdirSync(dist, { recursive: true }).map(String)) {
  if (!file.endsWith('.d.ts') || file === 'guest.d.ts') continue;
  const target = path.join(dist, file);
  // The compiler rewrites the extensions of imports in JavaScript only, so this program rewrites them in declarations.
  const text = readFileSync(target, 'utf8').replace(/(from '\.\.?\/[\w/-]+)\.ts'/g, "$1.js'");
  const guest = path.relative(path.dirname(target), path.join(dist, 'guest.d.ts')).split(path.sep).join('/');
  const reference = text.includes("'pie:inferlet/") ? `/// <reference path="./${guest}" />\n` : '';
  writeFileSync(target, reference + text);
}
