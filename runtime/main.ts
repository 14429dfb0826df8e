/** The runtime's program: `node runtime/main.ts`. */
import { enterPermissions } from './permissions.ts';

enterPermissions();
const { runProcess } = await import('./process.ts');
try {
  await runProcess();
} catch (error) {
  // These are for the operator, who needs no stack trace.
  const isSaid = error instanceof Error && ['IsolationError', 'SharedDirectoryError'].includes(error.name);
  const said = error instanceof Error ? (isSaid ? error.message : error.stack) : error;
  console.error('runtime:', said);
  process.exit(1);
}
