import type { Store } from '../../store/store.ts';

/** Cost of each item in addition to its content, in bytes, from quotas/README.md. */
const COST = { record: 2048, event: 64, logLine: 128, message: 64, queue: 512 } as const;
/** A queue stores each message behind a number. These are the bytes of the number, which do not count. */
const QUEUE_NUMBER_BYTES = 8;

/**
 * Computes a tenant's bytes in Redis from the stored values by the formula of quotas/README.md, independently of the scripts.
 *
 * @param invocations the ids of all invocations that the tenant ever had
 * @param headerBytes bytes of the texts of their headers, by id
 * @param components the hashes of all components that this tenant alone has uploaded
 */
export async function recount(
  { redis, keys }: Store,
  tenant: string,
  invocations: Iterable<string>,
  headerBytes: ReadonlyMap<string, number>,
  components: Iterable<string>,
): Promise<number> {
  let bytes = 0;
  for (const id of invocations) {
    const [status, arrival, message] = await redis.hmget(keys.invocation(id), 'status', 'arrival', 'message');
    if (status != null) bytes += COST.record + lengthOf(message ?? '') + (headerBytes.get(id) ?? 0);
    if (status === 'queued' || status === 'running') {
      const [job] = await redis.hmget(`${keys.jobs}:${id}`, 'data');
      // A child has no job. The job's data begins with the arrival number, which the submission did not have.
      if (job != null) bytes += lengthOf(job) - lengthOf(`"arrival":${arrival},`);
    }
    for (const [, fields] of await redis.xrange(keys.events(id), '-', '+')) {
      // Each event has four fields: `e`, its kind, `d` and its data.
      for (let i = 3; i < fields.length; i += 4) bytes += COST.event + lengthOf(fields[i] ?? '');
    }
    for (const message of await redis.lrangeBuffer(keys.inbox(id), 0, -1)) bytes += message.length;
    bytes += await redis.strlen(keys.input(id));
    const outcome = await redis.strlen(keys.outcome(id));
    if (outcome > 0) bytes += COST.event + outcome;
    const contents = await redis.hgetallBuffer(keys.fileContents(id));
    for (const [name, info] of Object.entries(await redis.hgetall(keys.files(id)))) {
      bytes += lengthOf(name) + lengthOf(info) + (contents[name]?.length ?? 0);
    }
  }
  // The data of a log line is the tenth field of its entry.
  for (const key of await redis.keys(keys.logs(tenant, '*'))) {
    for (const [, fields] of await redis.xrange(key, '-', '+')) bytes += COST.logLine + lengthOf(fields[9] ?? '');
  }
  for (const [key, value] of Object.entries(await redis.hgetallBuffer(keys.storedValues(tenant)))) {
    bytes += lengthOf(key) + value.length;
  }
  for (const state of await redis.keys(keys.messageQueueState(tenant, '*'))) {
    bytes += COST.queue;
    const messages = await redis.zrangeBuffer(state.replace(/state$/, 'messages'), '0', '-1');
    for (const message of messages) bytes += COST.message + message.length - QUEUE_NUMBER_BYTES;
  }
  return bytes + (await componentBytes({ redis, keys }, tenant, components));
}

/** Bytes of each version's component and record, and of uploaded components that no version uses. */
async function componentBytes(
  { redis, keys }: Pick<Store, 'redis' | 'keys'>,
  tenant: string,
  hashes: Iterable<string>,
): Promise<number> {
  let bytes = 0;
  for (const hash of hashes) {
    const size = await redis.strlen(keys.blob(hash));
    const users = await redis.smembers(keys.blobUsers(hash));
    if (users.length === 0) bytes += size;
    for (const user of users) {
      const [, name = '', version = ''] = /^[^/]*\/(.*)@(.*)$/.exec(user) ?? [];
      const deployed = await redis.hget(keys.function(tenant, name), `version:${version}`);
      const record = deployed ?? (await redis.hget(keys.removedVersions(tenant, name), version));
      bytes += size + lengthOf(record ?? '');
    }
  }
  return bytes;
}

const lengthOf = (text: string): number => Buffer.byteLength(text);
