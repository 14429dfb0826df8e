import type { Call } from './command.ts';
import { commandsFor } from './commands/index.ts';
import { EXIT, Failure, toFailure } from './failure.ts';
import { parse } from './program.ts';
import { Terminal } from './terminal.ts';
import { version } from './version.ts';

/** Time to cancel an invocation after its output has nowhere to go. */
const OUTPUT_GONE_GRACE_MS = 3000;

const argv = process.argv.slice(2);
let terminal = new Terminal({ json: argv.includes('--json') });
const code = await main();
// It is set already when the output could not be written.
process.exitCode ??= code;

async function main(): Promise<number> {
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  let isOutputGone = false;
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (isOutputGone) return;
    isOutputGone = true;
    terminal.silence();
    // A reader that leaves (`pie … | head`) is not an error; a full disk is one.
    if (error.code !== 'EPIPE') {
      const failure = unwritten(error);
      // For the last write, this comes after the command's end.
      process.exitCode = failure.exitCode;
      terminal.failure(failure);
    }
    setTimeout(() => process.exit(), OUTPUT_GONE_GRACE_MS).unref();
    // Stop the running work.
    interrupted.abort();
  });
  // An error that cannot be shown must not end the command before its work is stopped.
  process.stderr.on('error', () => undefined);
  try {
    const parsed = parse(await commandsFor(argv), version(), argv);
    if (parsed === null) return EXIT.ok;
    const { command, args, options } = parsed;
    terminal = new Terminal({ json: options.json === true });
    process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
    return (await command.run({ args, options, terminal, signal: interrupted.signal, connect })) ?? EXIT.ok;
  } catch (thrown) {
    if (isOutputGone) return EXIT.ok;
    if (interrupted.signal.aborted && isAbort(thrown)) return EXIT.interrupted;
    const failure = toFailure(thrown);
    terminal.failure(failure);
    if (failure.exitCode === EXIT.internal && failure.cause instanceof Error) console.error(failure.cause.stack);
    return failure.exitCode;
  } finally {
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
  }
}

/** Most commands of the machine itself need no client. */
async function connect(): ReturnType<Call['connect']> {
  const platform = await import('./connect.ts');
  return platform.connect();
}

/** True for the signal's reason, and for the errors with which Node's timers and prompts stand for it. */
function isAbort(thrown: unknown): boolean {
  return thrown instanceof Error && thrown.name === 'AbortError';
}

function unwritten(error: Error): Failure {
  return new Failure('Standard output cannot be written.', { code: 'output-lost', why: error.message, cause: error });
}
