import { readFileSync, writeFileSync } from 'node:fs';

/** Reads a kernel file; empty when it cannot be read. */
export function tryRead(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** Writes a kernel file. Ignores failures: reading the file afterwards shows whether the write worked. */
export function tryWrite(file: string, text: string): void {
  try {
    writeFileSync(file, text);
  } catch {
    // The kernel lacks the file, refuses the text, or has removed the group.
  }
}
