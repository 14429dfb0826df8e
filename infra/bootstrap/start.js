// `npm start`: installs what is missing, then hands over to the supervisor. Plain JavaScript for Node 20 or newer.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureBubblewrap, wantedBubblewrap } from './bubblewrap.js';
import { ensureDependencies } from './dependencies.js';
import { installStatement } from './packages.js';
import { ensureRedisServer, wantedRedisServer } from './redis-server.js';
import { runPinned } from './run.js';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
try {
  const statement = installStatement([...wantedRedisServer(), ...wantedBubblewrap(root)]);
  if (statement !== null) console.log(statement);
  const node = await ensureDependencies(root, { withTools: false }, ensureRedisServer);
  ensureBubblewrap(root);
  process.exitCode = await runPinned(root, node, ['infra/up.ts', ...process.argv.slice(2)]);
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : error}`);
  process.exitCode = 1;
}
