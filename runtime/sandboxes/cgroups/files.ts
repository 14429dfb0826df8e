import { readFileSync, writeFileSync } from 'node:fs';

/** Text of a file of the kernel; empty where there is none. */
export function tryRead(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** Writes a file of the kernel. A failure is survived: what the file says afterwards tells whether it worked. */
export function tryWrite(file: string, text: string): void {
  try {
    writeFileSync(file, text);
  } catch {
    // The kernel lacks that file, refuses the text, or the group is gone.
  }
}
