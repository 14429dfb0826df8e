import type { Writable } from 'node:stream';

/** Writes a line and resolves when the operating system has all of it. A process that exits earlier loses the output that waits in the stream. */
export function writeLine(stream: Writable, line: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(`${line}\n`, (error) => (error ? reject(error) : resolve()));
  });
}
