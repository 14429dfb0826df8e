import type { Writable } from 'node:stream';

/** Writes a line, and resolves when the reader has it: an exit of the process drops output that waits in a pipe. */
export function writeLine(stream: Writable, line: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(`${line}\n`, (error) => (error ? reject(error) : resolve()));
  });
}
