import { commands } from './commands/index.ts';
import { connect } from './connect.ts';
import { EXIT, toFailure } from './failure.ts';
import { parse } from './program.ts';
import { Terminal } from './terminal.ts';
import { version } from './version.ts';

/** Time to cancel an invocation after the reader of its output has left. */
const READER_LEFT_GRACE_MS = 3000;

const argv = process.argv.slice(2);
let terminal = new Terminal({ json: argv.includes('--json') });
process.exitCode = await main();

async function main(): Promise<number> {
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  let readerLeft = false;
  // A reader that leaves (`pie … | head`) is not an error: stop the running work.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE' || readerLeft) return;
    readerLeft = true;
    terminal.silence();
    setTimeout(() => process.exit(EXIT.ok), READER_LEFT_GRACE_MS).unref();
    interrupted.abort();
  });
  try {
    const parsed = parse(commands, version(), argv);
    if (parsed === null) return EXIT.ok;
    const { command, args, options } = parsed;
    terminal = new Terminal({ json: options.json === true });
    process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
    return (await command.run({ args, options, terminal, signal: interrupted.signal, connect })) ?? EXIT.ok;
  } catch (thrown) {
    if (readerLeft) return EXIT.ok;
    if (interrupted.signal.aborted && isAbort(thrown)) return EXIT.interrupted;
    const failure = toFailure(thrown);
    terminal.failure(failure);
    if (failure.exitCode === EXIT.internal && failure.cause instanceof Error) console.error(failure.cause.stack);
    return failure.exitCode;
  } finally {
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
  }
}

/** True for the signal's reason, and for the errors with which Node's timers and prompts stand for it. */
function isAbort(thrown: unknown): boolean {
  return thrown instanceof Error && thrown.name === 'AbortError';
}
