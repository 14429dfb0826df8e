import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import type { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { unexpected } from '#runtime/unexpected.ts';
import type { Figures } from '#scheduler/invocations/endings.ts';
import { RuntimeEnd } from '../channel/runtime-end.ts';
import type { SharedThread } from '../channel/shared-thread.ts';
import type { HostTable } from '../lowering/compile.ts';
import type { ProgramCode } from '../sandboxes/code-cache.ts';
import { confinedCommand } from '../sandboxes/command.ts';
import type { Layers } from '../sandboxes/layers.ts';
import { readFromSandbox } from './messages.ts';
import type { ProcessEvents, SandboxProcess } from './sandbox.ts';

export interface SandboxOptions {
  readonly layers: Layers;
  /** Answers the guests' calls. */
  readonly host: HostTable;
  /** Serves the channels of all sandboxes. */
  readonly thread: SharedThread;
  /** Memory that all guests of one sandbox may touch together. */
  readonly memoryMb: number;
  /** Part of `memoryMb` that ready instances may take. */
  readonly poolMb: number;
  /** Main module of the sandbox: `runtime/guest/main.ts`, unless a test substitutes a compromised sandbox. */
  readonly main?: string | undefined;
}

const MAIN = fileURLToPath(new URL('../guest/main.ts', import.meta.url));
/** Files that a sandbox may read: its own code, which is not secret. */
const CODE = [
  new URL('..', import.meta.url),
  new URL('../../wit', import.meta.url),
  new URL('../../gpu-host/protocol/errors.ts', import.meta.url),
  new URL('../../gpu-host/models/token-stream.ts', import.meta.url),
  new URL('../../package.json', import.meta.url),
].map((url) => fileURLToPath(url));

/** The run that fills the code cache: without arguments, the sandbox's program ends once it is loaded. */
export const LOADING: ProgramCode = { program: { main: MAIN, args: [], read: CODE } };

/** Descriptor of the channel in the sandbox. */
const CHANNEL = 3;
/** Time that the streams of a sandbox have to close after it exits. */
const CLOSE_GRACE_MS = 500;
/** Length of the last part of a sandbox's stderr that the runtime keeps. */
const MAX_STDERR_CHARACTERS = 4096;

/**
 * Starts the confined process of a sandbox. A channel to this process is its only connection.
 *
 * @param background true for a process that yields the cores until its weight is changed
 * @throws Error when the system has no memory or no descriptors for the process; a later failure arrives as `events.ended`
 */
export function startSandbox(options: SandboxOptions, events: ProcessEvents, background = false): SandboxProcess {
  const { layers, host, thread, memoryMb, poolMb, main = MAIN } = options;
  const program = { main, args: [`${poolMb}`], read: CODE };
  const group = layers.groups?.create(memoryMb) ?? null;
  if (background) group?.weigh('background');
  const {
    program: shell,
    args,
    env,
  } = confinedCommand(layers, program, {
    memoryMb,
    group: group?.directory,
    background: background ? 'at first' : undefined,
  });
  // `detached` gives the process its own session: no terminal, and one process group to kill. Descriptor 3 is the channel.
  let child: ChildProcess;
  try {
    child = spawn(shell, args, { detached: true, stdio: ['pipe', 'ignore', 'pipe', 'pipe'], env: { ...env } });
  } catch (error) {
    // The system refused the process, for example for lack of memory.
    void group?.remove();
    throw error;
  }
  // Without descriptors, `spawn` yields neither a process nor a channel.
  const stream = child.stdio?.[CHANNEL] as Duplex | undefined;
  if (!stream) {
    // The error event of the child follows. Without a listener, the event would end the runtime.
    child.once('error', () => undefined);
    void group?.remove();
    throw new Error('no process could be started for a sandbox: the system has no descriptors left');
  }
  child.once('error', (error) => end(`it could not be started (${unexpected(error)})`));
  // Standard input is a lifeline that ends the sandbox with the runtime. It breaks when the process ends, which the exit event reports.
  child.stdin?.on('error', () => undefined);
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-MAX_STDERR_CHARACTERS);
  });

  let reason: string | null = null;
  /** Figures of the decision to kill the sandbox. */
  let figures: Figures = {};
  // Id of the process that runs the guests. It is found at the first message: a guest that later takes over the sandbox could start child
  // processes, which `innermost` would follow.
  let pid: number | null = null;
  // True when the runtime itself ended the sandbox because it was no longer needed.
  let retired = false;
  let ended = false;
  const kill = (why: string, decidedBy: Figures = {}): void => {
    if (reason === null) [reason, figures] = [why, decidedBy];
    channel.close(why);
    if (child.pid === undefined || ended) return;
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // Every process of the group has ended.
    }
  };
  const channel = new RuntimeEnd(stream, {
    host,
    thread,
    control: (description) => {
      pid ??= innermost(child.pid ?? -1);
      events.message(readFromSandbox(description));
    },
    lost: (fault) => {
      // The stream normally ends with the process, and the exit event gives a better reason. If the process still runs, the closed lifeline ends it.
      if (fault.code === 'lost') child.stdin?.destroy();
      else if (fault.code === 'internal') kill(fault.message);
      else if (fault.code !== 'closed') kill(`it broke a rule of its channel (${fault.message})`);
    },
  });
  function end(why: string): void {
    if (ended) return;
    ended = true;
    if (group?.outOfMemory && reason === null) {
      [reason, figures] = ['it needed more memory than its control group may hold', { memoryMb }];
    }
    reason ??= why;
    void group?.remove();
    channel.close();
    const lastLines = stderr.trim().split('\n').slice(-3).join(' | ');
    events.ended({ reason, figures: { ...figures, ...(pid !== null && { pid }) }, lastLines });
  }
  child.once('close', (code, signal) => end(`it ended with ${exitText(code, signal)}`));
  // Processes that the sandbox started can hold its streams open and so delay the event `close`.
  child.once('exit', (code, signal) => {
    setTimeout(() => end(`it ended with ${exitText(code, signal)}`), CLOSE_GRACE_MS).unref();
  });
  return {
    get pid() {
      return pid ?? innermost(child.pid ?? -1);
    },
    group,
    get retired() {
      return retired;
    },
    get behind() {
      return channel.behind;
    },
    get untakenSinceMs() {
      return channel.untakenSinceMs;
    },
    get hasRoom() {
      return channel.hasRoom;
    },
    sent: () => channel.sent(),
    tell: (message, body) => {
      try {
        channel.tell(message, body);
      } catch {
        kill('it does not read what the runtime sends');
      }
    },
    open: (opening, guest) => channel.open(opening, guest),
    kill,
    retire(why) {
      retired = true;
      kill(why);
    },
  };
}

/** The signal or exit code of a process. A wrapper that ends because a signal ended its child exits with 128 and the signal's number. */
function exitText(code: number | null, signal: NodeJS.Signals | null): string {
  if (signal !== null) return signal;
  const [name] = Object.entries(constants.signals).find(([, number]) => number + 128 === code) ?? [];
  return name ?? `code ${code}`;
}

/** Follows a chain of processes that each started the next (bubblewrap, its init, Node) and returns the last one. */
function innermost(pid: number): number {
  let at = pid;
  for (let depth = 0; depth < 3; depth++) {
    const next = Number(childrenOf(at).split(' ')[0]);
    if (!(next > 0)) break;
    at = next;
  }
  return at;
}

function childrenOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  } catch {
    return ''; // The process has ended, or this system has no such file.
  }
}
