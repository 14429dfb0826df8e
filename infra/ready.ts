import { beatToSupervisor } from './heartbeat.ts';

/** What a process of the platform says on its standard output, once, when it can take work. */
export interface ReadyLine {
  readonly ready: true;
  readonly address?: string;
  /** What the operator should know of this start: it works, and something is not as it could be. */
  readonly notice?: string;
  readonly detail?: Record<string, unknown>;
}

/** Tells the supervisor that this process is ready; from then on it is watched, and beats. */
export function announceReady(info: Omit<ReadyLine, 'ready'> = {}): void {
  beatToSupervisor();
  process.stdout.write(`${JSON.stringify({ ready: true, ...info })}\n`);
}

/** The ready line in `text`, or null when it is an ordinary line of output. */
export function parseReadyLine(text: string): ReadyLine | null {
  if (!text.startsWith('{"ready":true')) return null;
  try {
    return JSON.parse(text) as ReadyLine;
  } catch {
    // An ordinary line that happens to begin alike.
    return null;
  }
}
