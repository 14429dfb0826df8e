import type { OpenFeed } from '#scheduler/invocations/feed.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import { quotaErrorCode } from '#scheduler/quotas/names.ts';
import { DISK_REMEDY, StoreError } from '#scheduler/store/errors.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import { retryHeaders } from '../app/http/authenticate.ts';

/** `retry-after` of a refusal for a busy concurrency key. It is a guess: the key becomes free at an unknown time, when an invocation ends. */
const CONCURRENCY_RETRY_MS = 1000;
/** `retry-after` of a refusal for too many debounce keys: each becomes free after the delay of its invocation, at least 1 s. */
const DEBOUNCE_RETRY_MS = 1000;

/** Converts errors of the scheduler to gateway errors. */
function translate(error: unknown): unknown {
  if (!(error instanceof StoreError)) return error;
  if (error instanceof QuotaExceeded) return quotaError(error);
  if (error.code === 'not-deployed') return new GatewayError('unknown-function', error.message, { cause: error });
  if (error.code === 'quarantined') return new GatewayError('quarantined', error.message, { cause: error });
  if (error.code === 'concurrency-key-busy')
    return new GatewayError('concurrency-key-busy', error.message, {
      headers: retryHeaders(CONCURRENCY_RETRY_MS),
      field: 'concurrency-key',
      cause: error,
    });
  if (error.code === 'debounce-keys-full')
    return new GatewayError('debounce-keys-full', error.message, {
      headers: retryHeaders(DEBOUNCE_RETRY_MS),
      field: 'debounce-key',
      cause: error,
    });
  if (error.code === 'above-memory') return new GatewayError('memory-unavailable', error.message, { cause: error });
  if (error.code === 'idempotency-key-reused') {
    return new GatewayError('idempotency-key-reused', 'The key was used before, for another function or body.', {
      field: 'idempotency-key',
      cause: error,
    });
  }
  if (error.code !== 'store-unavailable') return error;
  if (error.full) {
    return new GatewayError('store-unavailable', 'The store is full and takes no new data.', {
      hint: 'Delete stored values that you do not need, or wait: events and files of an invocation are deleted a day after its end, unless `[retention]` in pie.toml says otherwise. The operator can give Redis more memory: `[redis] max_memory_mb` in pie.toml, or `maxmemory` of an external Redis.',
      cause: error,
    });
  }
  if (error.diskFault !== undefined) {
    const text = `The store cannot write to its disk (${error.diskFault}) and takes no new data.`;
    return new GatewayError('store-unavailable', text, { hint: `For the operator: ${DISK_REMEDY}`, cause: error });
  }
  return new GatewayError('store-unavailable', 'The store does not answer. It may be restarting.', { cause: error });
}

/** The error names the quota, its use, and the time of the next attempt. */
function quotaError(error: QuotaExceeded): GatewayError {
  const { quota, function: fn, limit, used, resetsAt } = error.use;
  return new GatewayError(quotaErrorCode(quota), error.message, {
    members: {
      quota,
      function: fn,
      limit,
      used,
      resetsAt: resetsAt === null ? null : new Date(resetsAt).toISOString(),
    },
    headers: retryHeaders(error.retryAfterMs),
    ...(limit === 0 && { hint: 'The limit is 0: no request passes until an operator raises it.' }),
    cause: error,
  });
}

/** Runs a call of the scheduler and translates its errors. */
export async function translating<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw translate(error);
  }
}

/** Translates the errors of a feed. `notFoundError` makes the error for a subject that the store no longer has. */
export function translatingFeed<T>(open: OpenFeed<T>, notFoundError: () => GatewayError): OpenFeed<T> {
  return (ready) => {
    const feed = open(ready);
    return {
      take() {
        try {
          return feed.take();
        } catch (error) {
          // With this code, the feed reports a subject that the store does not have.
          throw error instanceof StoreError && error.code === 'invalid-argument' ? notFoundError() : translate(error);
        }
      },
      close: () => feed.close(),
    };
  };
}

/** Translates the errors of a stream. Stopping the stream early stops its source. */
export async function* translatingStream<T>(source: AsyncIterable<T>): AsyncGenerator<T, void, undefined> {
  try {
    yield* source;
  } catch (error) {
    throw translate(error);
  }
}
