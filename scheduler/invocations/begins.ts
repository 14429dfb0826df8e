import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { TurnCalls } from '../store/turn-calls.ts';
import { totalUsage } from '../usage/metered.ts';
import { SHOWN_AHEAD } from './appends.ts';
import { attemptLimits, optionalText, standingFrom, tuple, unexpected } from './replies.ts';
import type { AttemptOutcome } from './types.ts';

/** The beginning of an attempt. */
export interface AttemptBegin {
  readonly id: string;
  readonly runtimeId: string;
  /** Token of the call: a call repeated with the same token begins no second attempt. */
  readonly token: string;
  /** Token of the runtime's fetch; '' for any fetch of that runtime. */
  readonly fetchToken: string;
  /** True when the attempt shows its events to followers itself. */
  readonly showsOwnEvents: boolean;
}

const BEGIN = loadScript(new URL('./attempts.lua', import.meta.url), 'begin-attempt');

/** Maximum number of attempts that one script call begins: about a millisecond of Redis. */
const MAX_BEGINS = 16;

/** Begins the attempts of a process. Those of one turn of the event loop share script calls, so that admission runs once per call. */
export class Begins {
  readonly #store: Store;
  readonly #calls = new TurnCalls<AttemptBegin, AttemptOutcome>({
    size: () => 1 / MAX_BEGINS,
    call: (begins) => this.#call(begins),
  });

  constructor(store: Store) {
    this.#store = store;
  }

  begin(begin: AttemptBegin): Promise<AttemptOutcome> {
    return this.#calls.run(begin);
  }

  async #call(begins: readonly AttemptBegin[]): Promise<(() => AttemptOutcome)[]> {
    const { keys } = this.#store;
    const now = this.#store.clock();
    const beginKeys = begins.flatMap(({ id }) => [keys.invocation(id), `${keys.jobs}:${id}`]);
    const args = begins.flatMap(({ id, runtimeId, token, fetchToken, showsOwnEvents }) => [
      ...[runtimeId, keys.cancels(runtimeId), keys.cancelChannel(runtimeId), token, fetchToken],
      showsOwnEvents ? keys.live(id) : '',
    ]);
    const replies = tuple(await this.#store.script(BEGIN, [keys.runtimes, ...beginKeys], [now, SHOWN_AHEAD, ...args]));
    return replies.map((reply) => () => attemptOutcome(reply));
  }
}

/** Parses the reply of `beginAttempt` in the scripts. @throws StoreError */
export function attemptOutcome(reply: unknown): AttemptOutcome {
  const [begun, first, nextSeq, attempt, queuedAt, usageBefore, usageNow, standing, ...limits] = tuple(reply);
  if (begun === 1) {
    return {
      epoch: Number(first),
      nextSeq: Number(nextSeq),
      attempt: Number(attempt),
      queuedAt: Number(queuedAt),
      usageBefore: totalUsage(null, optionalText(usageBefore), optionalText(usageNow)),
      standing: standingFrom(standing),
      ...attemptLimits(limits),
    };
  }
  if (begun === -5) throw StoreError.from(new Error(String(first)));
  if (first === 'ended' || first === 'already-ran' || first === 'unknown' || first === 'not-held') {
    return { refused: first };
  }
  throw unexpected('begin-attempt', reply);
}
