// `npm test [PATTERN…]`: the same bootstrap as `npm start`, then types, lint and the first tests, or the tests of the patterns. With the argument
// `--ci` all tests that `npm test` leaves out, with `--all` both. Plain JavaScript for Node 20 or newer.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureBubblewrap, wantedBubblewrap } from '../bubblewrap.js';
import { ensureDependencies } from '../dependencies.js';
import { installStatement } from '../packages.js';
import { ensureRedisServer, wantedRedisServer } from '../redis-server.js';
import { usedCpuSeconds } from './cpu-time.js';
import { runLanes } from './lanes.js';
import {
  CHROMIUM,
  CLANG,
  COMPILER,
  ensureChromium,
  ensureClang,
  ensureCplusplus,
  ensureRust,
  RUST,
} from './programs.js';
import { stepsFor } from './steps.js';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');

try {
  const wanted = [...wantedRedisServer(), ...wantedBubblewrap(root), CLANG, COMPILER, RUST, CHROMIUM];
  const statement = installStatement(wanted);
  if (statement !== null) console.log(statement);
  const node = await ensureDependencies(root, { withTools: true }, () => {
    for (const ensure of [ensureRedisServer, ensureClang, ensureCplusplus, ensureRust, ensureChromium]) ensure();
  });
  ensureBubblewrap(root);
  for (const step of stepsFor(process.argv.slice(2))) {
    if (await runLanes(root, node, step)) continue;
    process.exitCode = 1;
    break;
  }
  console.log(`\nAll steps: ${Math.round(usedCpuSeconds())} s of processor time`);
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : error}`);
  process.exitCode = 1;
}
