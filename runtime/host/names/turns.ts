import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { TenantTurns } from '#scheduler/policies/tenant-turns.ts';

/** Maximum transfers at once, of one tenant and of all tenants: each transfer has two pieces in memory. */
const LIMITS = { tenant: 2, all: 8 };
/** Longest wait for a turn. */
const WAIT_MS = 60_000;

/** Bounds the transfers of saved pages, and the wait for each. Tenants whose transfers wait take turns. */
export class TransferTurns {
  readonly #turns = new TenantTurns(LIMITS);
  readonly #waitMs: number;

  constructor(waitMs = WAIT_MS) {
    this.#waitMs = waitMs;
  }

  /** Transfers that run or wait. */
  get size(): number {
    return this.#turns.size;
  }

  /** Makes a transfer when the tenant's turn comes. Returns an error when the turn does not come in time or the signal aborts first. */
  async during<T>(tenant: string, signal: AbortSignal, transfer: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    if (signal.aborted) return err(STOPPED);
    const refused = await this.#waitForTurn(tenant, signal);
    if (refused) return err(refused);
    try {
      return await transfer();
    } finally {
      this.#turns.leave(tenant);
    }
  }

  /** Resolves to null when the turn has come, and to an error when the wait has ended without it. */
  #waitForTurn(tenant: string, signal: AbortSignal): Promise<HandlerError | null> {
    return new Promise((resolve) => {
      const end = (error: HandlerError | null): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
        resolve(error);
      };
      const leaveQueue = (error: HandlerError): void => {
        cancel();
        end(error);
      };
      const onAbort = () => leaveQueue(STOPPED);
      const timer = setTimeout(() => leaveQueue(TOO_MANY), this.#waitMs);
      signal.addEventListener('abort', onAbort);
      const cancel = this.#turns.request(tenant, () => end(null));
    });
  }
}

const STOPPED = handlerError('cancelled', 'the inferlet was stopped before its pages were fetched');
const TOO_MANY = handlerError(
  'unavailable',
  'too many saved contexts are being fetched from other GPU hosts; try again, or place the function where they are',
);
