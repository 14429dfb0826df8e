import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { WriteOptions, WriteOutcome } from '#scheduler/key-values/key-values.ts';
import type { Entry } from '#wit/generated/host.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { askStore, attemptOf } from './ask.ts';

const MAX_KEY_BYTES = 512;
const MAX_VALUE_BYTES = 2 ** 20;
const MAX_LISTED_KEYS = 1000;

/** Implements `wit/store.wit`. */
export const store = {
  get: (inferlet: Inferlet, key: string): Promise<Outcome<Entry | undefined>> =>
    inferlet.unread.keep(
      call(inferlet, 'read', checkKey(key), async ({ keyValues }, tenant) => {
        const entry = await keyValues.get(tenant, key);
        return ok(entry ? { ...entry, value: compactCopy(entry.value) } : undefined);
      }),
      (entry) => entry?.value.length ?? 0,
    ),

  set: (
    inferlet: Inferlet,
    key: string,
    value: Uint8Array,
    timeToLive: number | undefined,
  ): Promise<Outcome<bigint>> => {
    const options = timeToLive === undefined ? {} : { timeToLiveSeconds: timeToLive };
    return write(inferlet, key, value, checkTimeToLive(timeToLive), options, (outcome) =>
      // A write without an expected version cannot conflict.
      outcome === undefined ? err(handlerError('internal', 'the store refused a write without a reason')) : ok(outcome),
    );
  },

  'compare-and-set': (
    inferlet: Inferlet,
    key: string,
    expected: bigint | undefined,
    value: Uint8Array,
  ): Promise<Outcome<bigint | undefined>> => write(inferlet, key, value, null, { expected: expected ?? null }, ok),

  'delete-key': (inferlet: Inferlet, key: string): Promise<Outcome<boolean>> =>
    call(inferlet, 'write', checkKey(key), async ({ keyValues }, tenant) =>
      ok(await keyValues.delete(tenant, key, attemptOf(inferlet))),
    ),

  exists: (inferlet: Inferlet, key: string): Promise<Outcome<boolean>> =>
    call(inferlet, 'read', checkKey(key), async ({ keyValues }, tenant) => ok(await keyValues.exists(tenant, key))),

  'list-keys': (
    inferlet: Inferlet,
    prefix: string,
    after: string | undefined,
    limit: number,
  ): Promise<Outcome<readonly string[]>> =>
    inferlet.unread.keep(
      call(inferlet, 'read', checkListing(prefix, after, limit), async ({ keyValues }, tenant) =>
        ok(await keyValues.list(tenant, prefix, after, limit)),
      ),
      (keys) => keys.reduce((sum, key) => sum + Buffer.byteLength(key), 0),
    ),
};

const NOTHING = new Uint8Array();

/**
 * Writes a value, which may be a view of the guest's memory.
 *
 * @param fault the error in the caller's other arguments, or null
 * @param answer makes the outcome from the new version, which is undefined when the key does not have the expected version
 */
function write<T>(
  inferlet: Inferlet,
  key: string,
  value: Uint8Array,
  fault: HandlerError | null,
  options: WriteOptions,
  answer: (version: bigint | undefined) => Outcome<T>,
): Promise<Outcome<T>> {
  const refused = checkKey(key) ?? checkValue(value) ?? fault;
  const stored = refused ? NOTHING : value.slice();
  const set = async ({ keyValues }: Inferlet['services'], tenant: string): Promise<Outcome<T>> => {
    const outcome: WriteOutcome = await keyValues.write(tenant, key, stored, {
      ...options,
      by: attemptOf(inferlet),
    });
    if (outcome.kind === 'full') {
      return limitExceeded(
        `the tenant's store has ${outcome.keys} keys and ${outcome.bytes} bytes, and no room for this one; delete what is not needed`,
      );
    }
    return answer(outcome.kind === 'written' ? outcome.version : undefined);
  };
  return call(inferlet, 'write', refused, set, value.length);
}

/** Copies bytes out of a much larger buffer, so that the rest of the store's answer can be freed. */
function compactCopy(bytes: Uint8Array): Uint8Array {
  return bytes.length * 2 < bytes.buffer.byteLength ? bytes.slice() : bytes;
}

function call<T>(
  inferlet: Inferlet,
  needs: 'read' | 'write',
  fault: HandlerError | null,
  make: (services: Inferlet['services'], tenant: string) => Promise<Outcome<T>>,
  bytes = 0,
): Promise<Outcome<T>> {
  const { description, services } = inferlet;
  const refused = checkGrant(description.grants.store, needs) ?? fault;
  if (refused) return Promise.resolve(err(refused));
  return askStore(inferlet, () => make(services, description.tenant), bytes);
}

function checkGrant(granted: Grants['store'], needs: 'read' | 'write'): HandlerError | null {
  if (granted === 'write' || granted === needs) return null;
  const text =
    granted === 'none'
      ? 'the function was not granted the store (manifest: "grants": {"store": true})'
      : 'the function may only read the store (manifest: "grants": {"store": "read"})';
  return handlerError('unsupported', text);
}

function checkKey(key: string): HandlerError | null {
  const bytes = Buffer.byteLength(key);
  if (bytes >= 1 && bytes <= MAX_KEY_BYTES) return null;
  return handlerError('invalid-argument', `the key has ${bytes} bytes; 1 to ${MAX_KEY_BYTES} are expected`);
}

function checkValue(value: Uint8Array): HandlerError | null {
  if (value.length <= MAX_VALUE_BYTES) return null;
  return handlerError('limit-exceeded', `the value has ${value.length} bytes; ${MAX_VALUE_BYTES} is the limit`);
}

function checkTimeToLive(seconds: number | undefined): HandlerError | null {
  if (seconds !== 0) return null;
  return handlerError('invalid-argument', 'a time to live of 0 seconds; 1 or more is expected, or none for ever');
}

function checkListing(prefix: string, after: string | undefined, limit: number): HandlerError | null {
  if (Buffer.byteLength(prefix) > MAX_KEY_BYTES || Buffer.byteLength(after ?? '') > MAX_KEY_BYTES) {
    return handlerError('invalid-argument', `a prefix or key has more than ${MAX_KEY_BYTES} bytes, which no key has`);
  }
  if (limit >= 1 && limit <= MAX_LISTED_KEYS) return null;
  return handlerError(
    'invalid-argument',
    `${limit} keys were requested; the limit of a list is 1 to ${MAX_LISTED_KEYS}`,
  );
}

const limitExceeded = (text: string): Outcome<never> => err(handlerError('limit-exceeded', text));
