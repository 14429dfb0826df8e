import type { Store } from '../store/store.ts';
import { type Retention, retentionArguments } from './retention.ts';
import type { FailureCode } from './types.ts';

/** The first keys and arguments of a script that may end one invocation; `endings.lua` reads them. */
export function endingArguments(
  store: Store,
  retention: Retention,
  id: string,
): { keys: string[]; args: (string | number)[] } {
  const { keys } = store;
  return {
    keys: [keys.invocation(id), keys.events(id), keys.inbox(id), keys.deadlines],
    args: [id, keys.live(id), keys.inboxChannel(id), store.clock(), ...retentionArguments(retention)],
  };
}

/** Data of the `error` event with which the platform ends an invocation. */
export function errorData(code: FailureCode, message: string): string {
  return JSON.stringify({ code, message });
}
