import type { Call } from './command.ts';
import { runCommandLine } from './command-line.ts';
import { Failure } from './failure.ts';
import { Terminal } from './terminal.ts';

/** Time for the command to cancel its invocation once the output cannot be written any more. */
const OUTPUT_GONE_GRACE_MS = 3000;

const code = await main(process.argv.slice(2));
// If the output could not be written, the exit code is set already.
process.exitCode ??= code;

async function main(argv: readonly string[]): Promise<number> {
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  let isOutputGone = false;
  let terminal: Terminal | undefined;
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (isOutputGone) return;
    isOutputGone = true;
    terminal?.silence();
    // A reader that leaves (`pie … | head`) is not an error; a full disk is one.
    if (error.code !== 'EPIPE') {
      const failure = outputFailure(error);
      // Set the exit code here: an error of the last write arrives after the command has ended.
      process.exitCode = failure.exitCode;
      terminal?.failure(failure);
    }
    setTimeout(() => process.exit(), OUTPUT_GONE_GRACE_MS).unref();
    // Stop the running work.
    interrupted.abort();
  });
  // An error that cannot be shown must not end the command before its work is stopped.
  process.stderr.on('error', () => undefined);
  try {
    return await runCommandLine(argv, {
      terminal: (json) => {
        terminal = new Terminal({ json });
        return terminal;
      },
      signal: interrupted.signal,
      connect,
      onCommand: () => process.once('SIGINT', interrupt).once('SIGTERM', interrupt),
      isUnread: () => isOutputGone,
    });
  } finally {
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
  }
}

/** Loads the client's modules, which commands without a platform do not need. */
async function connect(): ReturnType<Call['connect']> {
  const connecting = await import('./connect.ts');
  return connecting.connect();
}

function outputFailure(error: Error): Failure {
  return new Failure('Standard output cannot be written.', { code: 'output-lost', why: error.message, cause: error });
}
