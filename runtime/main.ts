/** The runtime's program: `node runtime/main.ts`. */
import { enterPermissions } from './permissions.ts';

enterPermissions();
const { runProcess } = await import('./process.ts');
try {
  await runProcess();
} catch (error) {
  // An `IsolationError` is for the operator, who needs no stack trace.
  const said = error instanceof Error ? (error.name === 'IsolationError' ? error.message : error.stack) : error;
  console.error('runtime:', said);
  process.exit(1);
}
