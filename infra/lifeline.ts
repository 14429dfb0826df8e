import { writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import type { Logger } from './log.ts';

/**
 * Environment variable that the supervisor sets to `stdin` for each child. The child then knows that the supervisor holds the other end of the
 * child's standard input, which closes when the supervisor dies, even by SIGKILL.
 */
export const LIFELINE_VARIABLE = 'PIE_LIFELINE';

/**
 * A shell script that runs the program in its arguments with a lifeline, for a program that knows none: when the standard input of the shell closes,
 * its whole process group gets SIGKILL. The program takes the shell's place and has an empty standard input. Start the shell in a process group of
 * its own.
 */
const GROUP_LIFELINE = `exec 3<&0
(cat <&3; kill -KILL 0) >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-`;

/**
 * The command that runs a program with a lifeline on its standard input. Start it with `detached` and a pipe as the standard input, which closes when
 * this process dies, even by SIGKILL. The program and all processes of its group then end.
 */
export function withLifeline(program: string, args: readonly string[]): { command: string; args: string[] } {
  return { command: '/bin/sh', args: ['-c', GROUP_LIFELINE, 'sh', program, ...args] };
}

/** Time that a child has to stop after its standard input has closed. */
const EXIT_DEADLINE_MS = 1500;

/**
 * Makes this process stop when its supervisor dies. The closed standard input shows the death. The process then runs `stop` and exits; if `stop`
 * takes longer than 1.5 s, the process exits without waiting for its end. A process without a supervisor is left alone.
 */
export function exitWithParent(log: Logger, stop: () => Promise<void> | void): void {
  if (process.env[LIFELINE_VARIABLE] !== 'stdin') return;
  let isEnding = false;
  const end = () => {
    if (isEnding) return;
    isEnding = true;
    setTimeout(() => process.exit(1), EXIT_DEADLINE_MS);
    Promise.resolve()
      .then(stop)
      .catch((error: unknown) => log.error({ error }, 'stopping after the death of the supervisor failed'))
      .finally(() => process.exit(1));
  };
  process.stdin.on('end', end).on('close', end).on('error', end).resume();
}

/** Variable that the supervisor sets for watched children: milliseconds between two beats on the lifeline, their standard input. */
export const HEARTBEAT_VARIABLE = 'PIE_HEARTBEAT_MS';

const LIFELINE_FD = 0;
const BEAT = Uint8Array.of(0x2e);

/**
 * Writes a byte to the lifeline at the supervisor's interval while the event loop of this process turns. Output of this process or its
 * children goes elsewhere, so it cannot pass for a beat. Does nothing when no supervisor watches this process.
 */
function beatToSupervisor(): void {
  const everyMs = Number(process.env[HEARTBEAT_VARIABLE]);
  if (!(everyMs > 0)) return;
  setInterval(() => {
    try {
      writeSync(LIFELINE_FD, BEAT);
    } catch {
      // After EAGAIN, the supervisor is suspended and has not read earlier beats. After other errors it is gone, and `lifeline.ts` ends the process.
    }
  }, everyMs).unref();
}

/** The line that a process of the platform prints once on its standard output when it can take work. */
export interface ReadyLine {
  readonly ready: true;
  readonly address?: string;
  /** A warning for the operator: the process works, but with a restriction. */
  readonly notice?: string;
  readonly detail?: Record<string, unknown>;
}

/**
 * Tells the supervisor that this process is ready. From then on the process beats and the supervisor watches it. Also keeps the compiled code
 * for the next start: otherwise Node would keep it only when the process exits, so a process that is killed would leave none.
 */
export function announceReady(info: Omit<ReadyLine, 'ready'> = {}): void {
  beatToSupervisor();
  flushCompileCache();
  process.stdout.write(`${JSON.stringify({ ready: true, ...info })}\n`);
}

/** The ready line in `text`, or null when it is an ordinary line of output. */
export function parseReadyLine(text: string): ReadyLine | null {
  if (!text.startsWith('{"ready":true')) return null;
  try {
    return JSON.parse(text) as ReadyLine;
  } catch {
    // An ordinary line with the same beginning.
    return null;
  }
}
