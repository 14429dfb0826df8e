/** What a process of the platform says on its standard output, once, when it can take work. */
export interface ReadyLine {
  readonly ready: true;
  readonly address?: string;
  readonly detail?: Record<string, unknown>;
}

/** Tells the supervisor that this process is ready. */
export function announceReady(info: Omit<ReadyLine, 'ready'> = {}): void {
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
