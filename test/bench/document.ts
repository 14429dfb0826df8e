/** Writes docs/benchmarks.md and its images from the results of a run: `node test/bench/document.ts RESULTS_FILE`. */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { ROOT } from '#test/harness/platform.ts';
import { readResults } from './all.ts';
import { reportOf } from './report/markdown.ts';

const [file] = process.argv.slice(2);
if (file === undefined) {
  console.error('Usage: node test/bench/document.ts RESULTS_FILE\n\nRESULTS_FILE is results.json of `pie bench all`.');
  process.exit(1);
}
const results = await readResults(file);
const { markdown, images } = reportOf(results, 'benchmarks/');
const intro = `# Benchmarks

\`npx pie bench all\` measured these figures. \`node test/bench/document.ts RESULTS_FILE\` makes this page from them;
[results.json](benchmarks/results.json) has every sample. [test/bench](../test/bench/README.md) describes the benchmarks and has their history.
`;
const folder = path.join(ROOT, 'docs/benchmarks');
await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
await writeFile(path.join(ROOT, 'docs/benchmarks.md'), `${intro}\n${markdown}`);
await writeFile(path.join(folder, 'results.json'), `${JSON.stringify(results)}\n`);
for (const [name, svg] of images) await writeFile(path.join(folder, name), svg);
console.log(`wrote docs/benchmarks.md and ${images.size} images`);
