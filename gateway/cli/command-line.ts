import type { Call } from './command.ts';
import { commandsFor } from './commands/index.ts';
import { EXIT, toFailure } from './failure.ts';
import { version } from './paths.ts';
import { parse } from './program.ts';
import type { Terminal } from './terminal.ts';

/**
 * Access to the process that runs a command line: a process of `pie`, or a test that runs commands in its own process.
 */
interface Surroundings extends Pick<Call, 'signal' | 'connect'> {
  /** Opens the output. Called twice: before the command line is parsed, to report its faults, and then with the parsed option `--json`. */
  terminal(json: boolean): Terminal;
  /** Called once the command is known, before it runs. */
  onCommand?(): void;
  /** True when the output cannot be written any more. The command then fails for this reason, and its failure is not reported. */
  isUnread?(): boolean;
}

/** Runs the command of a command line, and reports its failure. Returns the exit code. */
export async function runCommandLine(argv: readonly string[], surroundings: Surroundings): Promise<number> {
  const { signal, connect } = surroundings;
  let terminal = surroundings.terminal(argv.includes('--json'));
  try {
    const parsed = parse(await commandsFor(argv), version(), argv);
    if (parsed === null) return EXIT.ok;
    const { command, args, options, json } = parsed;
    terminal = surroundings.terminal(json);
    surroundings.onCommand?.();
    return (await command.run({ args, options, terminal, signal, connect })) ?? EXIT.ok;
  } catch (thrown) {
    if (surroundings.isUnread?.()) return EXIT.ok;
    if (signal.aborted && isAbort(thrown)) return EXIT.interrupted;
    const failure = toFailure(thrown);
    terminal.failure(failure);
    return failure.exitCode;
  }
}

/** True for the signal's reason, and for the errors that Node's timers and prompts throw instead of it. */
function isAbort(thrown: unknown): boolean {
  return thrown instanceof Error && thrown.name === 'AbortError';
}
