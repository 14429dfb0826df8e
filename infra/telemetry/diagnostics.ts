import { type DiagLogger, DiagLogLevel, diag } from '@opentelemetry/api';
import type { Logger } from '../log.ts';

/** Shortest interval between two equal messages: while a collector is away, every export fails. */
const SILENCE_MS = 60_000;
/** Maximum different messages remembered. */
const MAX_KNOWN = 256;

/** Logs export failures; the SDK does not report them by default. */
export function reportDiagnostics(log: Logger): void {
  diag.setLogger(diagnosticsLogger(log), { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}

/** Logs warnings and errors, each at most once a minute. */
export function diagnosticsLogger(log: Logger, now: () => number = Date.now): DiagLogger {
  const saidAt = new Map<string, number>();
  const say = (message: string, ...details: unknown[]): void => {
    const why = [plain(message), ...details.map(textOf)].join(' ');
    const at = now();
    if (at - (saidAt.get(why) ?? Number.NEGATIVE_INFINITY) < SILENCE_MS) return;
    if (saidAt.size >= MAX_KNOWN) saidAt.clear();
    saidAt.set(why, at);
    log.warn({ why }, 'telemetry could not be exported');
  };
  const silent = () => undefined;
  return { error: say, warn: say, info: silent, debug: silent, verbose: silent };
}

/** The SDK passes some errors as JSON text that includes the stack; this extracts the message. */
function plain(message: string): string {
  try {
    return String((JSON.parse(message) as { message: unknown }).message);
  } catch {
    return message;
  }
}

function textOf(detail: unknown): string {
  return detail instanceof Error ? detail.message : String(detail);
}
