import { type ParseArgsConfig, parseArgs } from 'node:util';

/** An error that ends a program. Its message says what failed, why, and what to do; `runMain` prints it without a stack. */
export class ProgramError extends Error {
  override readonly name = 'ProgramError';
}

/**
 * Reads the program's arguments with `parseArgs`. With `--help`, prints the usage and exits. When `parseArgs` rejects the command line,
 * prints the error and the usage, and exits with 2.
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

/** Rejects arguments that `parseArgs` accepted: prints the error and the usage, and exits with 2. */
export function refuseArguments(usage: string, why: string): never {
  process.stderr.write(`error: ${why}\n\n${usage}`);
  process.exit(2);
}

/** Runs a program. For a {@link ProgramError}, or an error of a class in `known`, prints only the message and exits with 1. */
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
