import { Writable } from 'node:stream';
import { runCommandLine } from '../cli/command-line.ts';
import { Terminal } from '../cli/terminal.ts';
import { PieClient } from '../client/client.ts';

/** Output and exit code of a command. */
export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a `pie` command in this process, against a platform: a separate process takes 0.15 s of processor time to start. This function cannot test
 * commands that read standard input or that a signal ends.
 *
 * @param onError called after each write to standard error, with the whole text so far
 */
export async function runPie(
  platform: { readonly url: string; readonly apiKey: string },
  args: readonly string[],
  onError: (text: string) => void = () => undefined,
): Promise<Ran> {
  const { url, apiKey } = platform;
  let [stdout, stderr] = ['', ''];
  const out = stream((text) => {
    stdout += text;
  });
  const err = stream((text) => {
    stderr += text;
    onError(stderr);
  });
  const code = await runCommandLine(args, {
    terminal: (json) => new Terminal({ json, out, err }),
    signal: new AbortController().signal,
    connect: async () => ({ client: new PieClient({ url, apiKey }), credentials: { url, apiKey, source: 'the test' } }),
  });
  return { code, stdout, stderr };
}

/** A stream without the members of a terminal, like the standard output of a command that writes into a pipe. */
function stream(onText: (text: string) => void): NodeJS.WriteStream {
  const write = (chunk: Buffer, _encoding: string, done: () => void) => {
    onText(chunk.toString());
    done();
  };
  return new Writable({ write }) as NodeJS.WriteStream;
}
