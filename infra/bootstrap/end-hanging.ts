/** Preload of test processes: a file whose tests are over, but which keeps its process alive, fails instead of holding its step. */
import { after } from 'node:test';
import { isMainThread } from 'node:worker_threads';

/** Time for what the file does after its last test, such as stopping platforms. */
const GRACE_MS = Number(process.env.PIE_TEST_GRACE_MS ?? 60_000);

const file = process.argv[1] ?? '';

// Threads and forks of a test process load this file, too.
if (isMainThread && /\.test\.[cm]?[jt]s$/.test(file)) {
  after(() => {
    setTimeout(() => {
      const activeResources = process.getActiveResourcesInfo().join(', ');
      console.error(
        `${file}: all tests ended ${GRACE_MS / 1000} s ago, but its process did not. It holds ${activeResources}.`,
      );
      process.exit(1);
    }, GRACE_MS).unref();
  });
}
