/**
 * Preload of each process that runs a test file. When all tests of the file are over but its process does not end, this module ends the process
 * with a failure. Otherwise the process would hold up the rest of the test run.
 */
import { after } from 'node:test';
import { isMainThread } from 'node:worker_threads';

/** Time that a test file may take after its last test, for example to stop platforms. */
const GRACE_MS = Number(process.env.PIE_TEST_GRACE_MS ?? 60_000);

const file = process.argv[1] ?? '';

// Threads and forks of a test process load this module, too.
if (isMainThread && /\.test\.[cm]?[jt]s$/.test(file)) {
  after(() => {
    // `unref`: this timer must not keep the process alive itself.
    setTimeout(() => {
      const activeResources = process.getActiveResourcesInfo().join(', ');
      console.error(
        `${file}: all tests ended ${GRACE_MS / 1000} s ago, but its process did not. It holds ${activeResources}.`,
      );
      process.exit(1);
    }, GRACE_MS).unref();
  });
}
