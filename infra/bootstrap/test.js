// `npm test`: the same bootstrap as `npm start`, then types, lint and every test. Plain JavaScript for Node 20 or newer.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureBubblewrap } from './bubblewrap.js';
import { ensureChromium } from './chromium.js';
import { ensureClang } from './clang.js';
import { ensureCplusplus } from './cplusplus.js';
import { ensureDependencies } from './dependencies.js';
import { ensureRedisServer } from './redis-server.js';
import { runStep } from './step.js';
import { chosenTests, STEPS } from './steps.js';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const only = process.argv.slice(2);

try {
  const node = ensureDependencies(root);
  ensureRedisServer();
  ensureBubblewrap(root);
  ensureClang();
  ensureCplusplus();
  ensureChromium();
  for (const { title, minutes, args, files = [] } of only.length > 0 ? chosenTests(only) : STEPS) {
    console.log(`\n== ${title}`);
    const from = performance.now();
    const { code, unfinished } = await runStep(root, node, [...args, ...files], AbortSignal.timeout(minutes * 60_000));
    console.log(`${title}: ${Math.round((performance.now() - from) / 1000)} s`);
    if (unfinished !== null) {
      console.error(`\n${title}: did not end within ${minutes} minutes, and was killed. Tests that still ran:`);
      console.error(unfinished.map((file) => `  ${file}`).join('\n') || '  none');
    }
    if (code !== 0 || unfinished !== null) {
      console.error(`\n${title}: failed.`);
      process.exitCode = 1;
      break;
    }
  }
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : error}`);
  process.exitCode = 1;
}
