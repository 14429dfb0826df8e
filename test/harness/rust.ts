import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { MissingCompilerError } from '#runtime/build/native/compiler.ts';
import { findRustc } from '#runtime/build/native/rustc.ts';

/** The reason to skip tests that compile Rust; false where they can run. */
export async function noRustc(): Promise<string | false> {
  try {
    await findRustc();
    return false;
  } catch (error) {
    if (error instanceof MissingCompilerError) return `${error.message} ${error.hint}`;
    throw error;
  }
}

/**
 * Makes this process find a shell script in place of rustc. The script lies in a new folder `bin` of `folder`.
 * @param scriptOf makes the script from the path of rustc
 * @returns a function that restores the search path
 */
export async function replaceRustc(folder: string, scriptOf: (rustc: string) => string): Promise<() => void> {
  const { PATH } = process.env;
  const script = `#!/bin/sh\n${scriptOf(await findRustc())}`;
  const bin = path.join(folder, 'bin');
  await mkdir(bin);
  await writeFile(path.join(bin, 'rustc'), script, { mode: 0o755 });
  process.env.PATH = `${bin}:${PATH}`;
  return () => {
    process.env.PATH = PATH;
  };
}
