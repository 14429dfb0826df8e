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
