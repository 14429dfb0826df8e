/** The runtime's program: `node runtime/main.ts`. */
import { enterPermissions } from './permissions.ts';

enterPermissions();
const { runProcess } = await import('./process.ts');
try {
  await runProcess();
} catch (error) {
  // These two errors address the operator, who needs no stack trace.
  const isForOperator = error instanceof Error && ['IsolationError', 'SharedDirectoryError'].includes(error.name);
  const message = error instanceof Error ? (isForOperator ? error.message : error.stack) : error;
  console.error('runtime:', message);
  process.exit(1);
}
