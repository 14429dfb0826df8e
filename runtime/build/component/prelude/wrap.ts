import { log } from 'pie:inferlet/runtime@0.1.0';
import { start } from './phase.ts';

/** What most runs allocate. */
const ROOM_BYTES = 1 << 20;

/**
 * Makes the component's `run` of the user's: what it returns becomes a string (anything but a string as JSON), what it throws an Error with a
 * readable message. Other values would trap in the engine and tell nobody why.
 */
export function wrap(run: unknown): (input: string) => Promise<string> {
  if (typeof run !== 'function') throw new TypeError('the entry module must export a function named run');
  // Freed at once, and then part of the snapshot: a run that fits into it leaves the memory as large as it was, so that its instance can be renewed.
  new Uint8Array(ROOM_BYTES).fill(0);
  return async function inferlet(input: string): Promise<string> {
    start();
    try {
      return textOf(await run(input));
    } catch (thrown) {
      if (thrown instanceof Error && thrown.name !== 'Error' && thrown.stack) {
        log('debug', `${thrown}\n${thrown.stack}`.toWellFormed());
      }
      throw new Error(messageOf(thrown).toWellFormed());
    }
  };
}

function textOf(result: unknown): string {
  const text = typeof result === 'string' ? result : JSON.stringify(result ?? null);
  if (text === undefined) throw new TypeError(`run must return JSON or a string; it returned a ${typeof result}`);
  return text.toWellFormed();
}

/** Why it failed, on one line: an error of the host by its case and text. */
function messageOf(thrown: unknown): string {
  if (!(thrown instanceof Error))
    return typeof thrown === 'string' ? thrown : `thrown: ${JSON.stringify(thrown) ?? String(thrown)}`;
  const { payload } = thrown as { payload?: unknown };
  if (typeof payload === 'string') return payload;
  if (payload && typeof payload === 'object' && 'tag' in payload) {
    return 'val' in payload && payload.val ? `${String(payload.tag)}: ${String(payload.val)}` : String(payload.tag);
  }
  if (!thrown.message) return thrown.name;
  return thrown.name === 'Error' ? thrown.message : `${thrown.name}: ${thrown.message}`;
}
