/** The runtime's program: `node runtime/main.ts`. */
import { enterPermissions } from './permissions.ts';

enterPermissions();
const { runProcess } = await import('./process.ts');
try {
  await runProcess();
} catch (error) {
  console.error('runtime:', error instanceof Error ? (error.stack ?? error.message) : error);
  process.exit(1);
}
