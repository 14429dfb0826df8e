import { type ParseArgsConfig, parseArgs } from 'node:util';

/** What keeps a program from its work, for the person who started it: what, why, what to do. It ends without a stack. */
export class ProgramError extends Error {
  override readonly name = 'ProgramError';
}

/**
 * The arguments of a program, as `parseArgs` reads them. With `--help` it prints how it is used and ends; a line that it does not understand is told with
 * that, and ends it with 2.
 */
export function readArguments<const T extends ParseArgsConfig>(
  usage: string,
  config: T,
): ReturnType<typeof parseArgs<T>> {
  const words = process.argv.slice(2);
  if (words.some((word) => word === '--help' || word === '-h')) {
    process.stdout.write(usage);
    process.exit(0);
  }
  try {
    return parseArgs(config);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'))) throw error;
    return refuseArguments(usage, error.message);
  }
}

/** Ends a program whose arguments are wrong in a way that `parseArgs` does not see. */
export function refuseArguments(usage: string, why: string): never {
  process.stderr.write(`error: ${why}\n\n${usage}`);
  process.exit(2);
}

/** Runs a program; a {@link ProgramError}, or one of those that are `known`, ends it with 1 and its words alone. */
export async function runMain(
  main: () => void | Promise<void>,
  known: readonly (new (...args: never[]) => Error)[] = [],
): Promise<void> {
  try {
    await main();
  } catch (error) {
    if (!(error instanceof Error && [ProgramError, ...known].some((kind) => error instanceof kind))) throw error;
    process.stderr.write(`error: ${error.message}\n`);
    process.exitCode = 1;
  }
}
