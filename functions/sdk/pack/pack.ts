/** `npm pack` and `npm publish` run this first: the source compiled, with the contract that it was written against. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packed, unpacked } from './exports.ts';
import { PACKAGE, rewriteExports } from './manifest.ts';

const dist = path.join(PACKAGE, 'dist');
const wit = path.join(PACKAGE, '../../wit');
const tsc = path.join(PACKAGE, '../../node_modules/typescript/bin/tsc');

// An interrupted run may have left the packed form behind, which must not name what is about to be removed.
rewriteExports(unpacked);
rmSync(dist, { recursive: true, force: true });
execFileSync(process.execPath, [tsc, '-p', path.join(PACKAGE, 'pack/tsconfig.json')], { stdio: 'inherit' });

// The repository has one copy of the contract; the package carries it along, as types and as WIT.
mkdirSync(path.join(dist, 'wit'));
copyFileSync(path.join(wit, 'generated/guest.d.ts'), path.join(dist, 'guest.d.ts'));
for (const file of readdirSync(wit)) {
  if (file.endsWith('.wit')) copyFileSync(path.join(wit, file), path.join(dist, 'wit', file));
}
for (const file of readdirSync(dist)) {
  if (!file.endsWith('.d.ts') || file === 'guest.d.ts') continue;
  const target = path.join(dist, file);
  // The compiler rewrites the extensions of imports in JavaScript only.
  const text = readFileSync(target, 'utf8').replace(/(from '\.\/[\w-]+)\.ts'/g, "$1.js'");
  const reference = text.includes("'pie:inferlet/") ? '/// <reference path="./guest.d.ts" />\n' : '';
  writeFileSync(target, reference + text);
}
rewriteExports(packed);
