import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { confinedCommand } from './command.ts';
import { BUBBLEWRAP, type Layers, layersFor, type Probe, SETPRIV } from './layers.ts';

/** Confinement programs; a plain name is looked up on the PATH. */
export interface ProbeOptions {
  readonly bubblewrap?: string;
  readonly setpriv?: string;
}

/** Maximum duration of one attempt, long enough for a busy machine. */
const DEADLINE_MS = 20_000;
const TRIVIAL = fileURLToPath(new URL('probe-child.js', import.meta.url));
const READY = 'confined';

/** Probes this machine: starts Node in namespaces exactly as untrusted work will be started. */
export async function probeMachine({ bubblewrap = 'bwrap', setpriv = 'setpriv' }: ProbeOptions = {}): Promise<Probe> {
  const [namespaces, options] = await Promise.all([tryBubblewrap(bubblewrap), trySetpriv(setpriv)]);
  return { bubblewrap: namespaces, setpriv: options };
}

async function tryBubblewrap(name: string): Promise<Probe['bubblewrap']> {
  const program = find(name);
  if (program === null) return { missing: `bubblewrap (\`${name}\`) is not installed` };
  let problem = '';
  for (const options of BUBBLEWRAP) {
    const wrapper = [program, ...options];
    const { failure, output } = await runNode({ isolation: 'namespaces', wrapper, notice: null });
    if (output.trim() === READY) return { command: wrapper };
    problem = failure ?? `it answered ${JSON.stringify(output.slice(0, 80))}`;
  }
  return { missing: `\`${program}\` cannot start Node in namespaces (${problem})` };
}

function runNode(layers: Layers): ReturnType<typeof run> {
  const limits = { cpuSeconds: DEADLINE_MS / 1000, memoryMb: 256 };
  const { program, args, env } = confinedCommand(layers, { main: TRIVIAL, args: [], read: [] }, limits);
  return run(program, args, env);
}

async function trySetpriv(name: string): Promise<readonly string[] | null> {
  const program = find(name);
  if (program === null) return null;
  for (const options of SETPRIV) {
    const { failure } = await run(program, [...options, '/bin/sh', '-c', ':'], {});
    if (failure === null) return [program, ...options];
  }
  return null;
}

function run(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<{ readonly failure: string | null; readonly output: string }> {
  return new Promise((resolve) => {
    execFile(program, args, { env, timeout: DEADLINE_MS, killSignal: 'SIGKILL' }, (error, output, errors) => {
      if (!error) return resolve({ failure: null, output });
      const lastLine = errors.trim().split('\n').at(-1) ?? '';
      resolve({ failure: lastLine.slice(0, 200) || `it ended with ${error.code ?? error.signal}`, output });
    });
  });
}

/** Path of an executable on the PATH; null when there is none. */
function find(name: string): string | null {
  const files = isAbsolute(name)
    ? [name]
    : (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, name));
  for (const file of files) {
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // The program is not in this folder of the PATH.
    }
  }
  return null;
}

let layers: Promise<Layers> | undefined;

/** The strongest layers that this machine supports, probed once per process. */
export function machineLayers(): Promise<Layers> {
  layers ??= probeMachine().then((probe) => layersFor('auto', probe));
  return layers;
}
