/** `npm run package`: writes the tarballs of `pie` and `@pie/inferlet` into a folder. `--help` says how. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { readArguments, refuseArguments } from '../arguments.ts';
import { ROOT } from '../install.ts';
import { stageLibrary, stagePie } from './stage.ts';

const USAGE = `Usage: npm run package -- [FOLDER] [options]

Writes the npm packages of Pie (\`pie\`, and \`@pie/inferlet\` for inferlets) as tarballs into FOLDER, dist/ by default, for a project outside of the clone.

  --json   print the tarballs' paths as JSON
  --help   print this
`;

const { values, positionals } = readArguments(USAGE, {
  allowPositionals: true,
  options: { json: { type: 'boolean', default: false } },
});
if (positionals.length > 1) refuseArguments(USAGE, `expected at most one FOLDER, got ${positionals.join(' and ')}`);
const out = path.resolve(positionals[0] ?? path.join(ROOT, 'dist'));
const work = mkdtempSync(path.join(os.tmpdir(), 'pie-package-'));
try {
  const [pie, library] = [path.join(work, 'pie'), path.join(work, 'inferlet')];
  for (const folder of [pie, library, out]) mkdirSync(folder, { recursive: true });
  stageLibrary(library);
  stagePie(pie, library);
  const tarballs = [pie, library].map((folder) => path.join(out, pack(folder)));
  if (values.json) console.log(JSON.stringify({ tarballs }));
  else {
    for (const file of tarballs) console.log(`${file}  ${Math.ceil(statSync(file).size / 1000)} kB`);
    // No package needs its install script, and that of onnxruntime-node downloads CUDA libraries or fails.
    console.log(`\nInstall them, in a folder with a package.json: npm install --ignore-scripts ${tarballs.join(' ')}`);
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}

/** Packs a folder with npm and returns the tarball's name. */
function pack(folder: string): string {
  const args = ['pack', '--ignore-scripts', '--json', '--loglevel=error', '--pack-destination', out];
  const reply = execFileSync('npm', args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  const packed: unknown = JSON.parse(reply);
  // Older versions of npm print a list, newer ones an object with a member per package.
  const [first] = Object.values(packed as Record<string, { filename: string }>);
  if (first === undefined) throw new Error(`npm packed nothing in ${folder}`);
  return first.filename.replace('@', '').replace('/', '-');
}
