import { flushCompileCache } from 'node:module';
import { beatToSupervisor } from './heartbeat.ts';

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
