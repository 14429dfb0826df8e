/**
 * Every Redis key and channel of the platform, in one place. The prefix keeps tests and two copies on one Redis apart; wrap it in braces
 * (`{pie}`) to keep all keys in one slot of a Redis Cluster.
 */
export interface Keys {
  readonly prefix: string;
  /** Prefix of BullMQ's own keys: `<bull>:<queue name>:<kind>`. */
  readonly bull: string;
  /** Hash: the record of one invocation. */
  invocation(id: string): string;
  /** Stream: the events of one invocation, ids `<seq>-0`. */
  events(id: string): string;
  /** Channel: the live tail of that stream. */
  live(id: string): string;
  /** List: messages of the client not yet taken by the inferlet. */
  inbox(id: string): string;
  /** Channel: a message arrived, or the inbox was closed. */
  inboxChannel(id: string): string;
  /** Hash: the files of one invocation, name to `{"mediaType", "size"}`. */
  files(id: string): string;
  /** Hash: the contents of those files, name to bytes. */
  fileContents(id: string): string;
  /** Hash: `bytes` of a tenant's stored files, and those of each of its invocations by id. */
  fileUsage(tenant: string): string;
  /** Sorted set: a tenant's ended invocations with files, by when those are forgotten (ms since the epoch). */
  fileExpiries(tenant: string): string;
  /** Hash: child invocations that have not ended, id to the runtime that runs them. */
  readonly children: string;
  /** Counter: the last arrival number given out. */
  readonly arrivals: string;
  /** Sorted set: a tenant's invocations that wait for their turn, by deadline (ms since the epoch). */
  waiting(tenant: string): string;
  /** Sorted set: invocations that have not ended, by deadline (ms since the epoch). */
  readonly deadlines: string;
  /** String: id of the invocation made with an idempotency key. */
  idempotency(tenant: string, key: string): string;
  /** Sorted set: ids of a function's last invocations, by submission time. */
  recent(tenant: string, name: string): string;
  /** Stream: log lines of a function, over all its invocations. */
  logs(tenant: string, name: string): string;
  /** Channel: something was added to that stream. */
  logsChannel(tenant: string, name: string): string;
  /** Hash: registered runtimes, id to JSON. */
  readonly runtimes: string;
  /** String with a TTL: a runtime is alive. */
  alive(runtimeId: string): string;
  /** Hash: cancels that a runtime has been asked for, invocation to reason. */
  cancels(runtimeId: string): string;
  /** Channel: cancels for a runtime. */
  cancelChannel(runtimeId: string): string;
  /** Set: names of a tenant's functions. */
  functions(tenant: string): string;
  /** Hash: a function's versions, version to JSON; field `current` names the one that is served. */
  function(tenant: string, name: string): string;
  /** String: the bytes of a component. */
  blob(hash: string): string;
  /** Set: function versions that use a component. */
  blobUsers(hash: string): string;
  /** String with a TTL: the reply to a build request. */
  build(id: string): string;
  /** Channel: that reply is there. */
  buildChannel(id: string): string;
  /** String with a TTL: what a script answered a call that may be sent twice. */
  reply(token: string): string;
  /** Hash: a tenant's stored values by key, each behind its version (8 bytes, big-endian). */
  storedValues(tenant: string): string;
  /** Sorted set: the same keys, all with score 0: in order of their bytes. */
  storedNames(tenant: string): string;
  /** Sorted set: keys that are forgotten, by when (ms since the epoch). */
  storedExpiries(tenant: string): string;
  /** Hash: `bytes` of a tenant's keys and values, `version` last given out. */
  storedUsage(tenant: string): string;
  /** Sorted set: tenants with keys that are forgotten, by when the next one is (ms since the epoch). */
  readonly storedSweeps: string;
  /** Hash: who subscribes to a topic, channel of a process to `<subscriptions>:<generation>`. */
  topic(tenant: string, name: string): string;
  /** Channel: broadcasts for the subscriptions of one process. */
  broadcastChannel(processId: string): string;
  /** Sorted set: messages of a line, by number. */
  line(tenant: string, name: string): string;
  /** Hash: `bytes` of a line's messages, `last` number given out. */
  lineState(tenant: string, name: string): string;
  /** Hash: `bytes` of all lines of a tenant, and those of each by its key. */
  linesUsage(tenant: string): string;
  /** Sorted set: keys of a tenant's lines, by when they are forgotten (ms since the epoch). */
  linesExpiries(tenant: string): string;
  /** Channel: something was put into a line. */
  lineChannel(tenant: string, name: string): string;
}

/** Name of the BullMQ queue of invocations. */
export const INVOCATION_QUEUE = 'invocations';
/** Name of the BullMQ queue of build requests. */
export const BUILD_QUEUE = 'builds';

/** Key names under a prefix. */
export function createKeys(prefix = 'pie'): Keys {
  const at = (...parts: string[]) => [prefix, ...parts].join(':');
  return {
    prefix,
    bull: at('bull'),
    invocation: (id) => at('invocation', id),
    events: (id) => at('invocation', id, 'events'),
    live: (id) => at('invocation', id, 'live'),
    inbox: (id) => at('invocation', id, 'inbox'),
    inboxChannel: (id) => at('invocation', id, 'inbox-channel'),
    files: (id) => at('invocation', id, 'files'),
    fileContents: (id) => at('invocation', id, 'file-contents'),
    fileUsage: (tenant) => at('file-usage', tenant),
    fileExpiries: (tenant) => at('file-expiries', tenant),
    children: at('children'),
    arrivals: at('arrivals'),
    waiting: (tenant) => at('waiting', tenant),
    deadlines: at('deadlines'),
    idempotency: (tenant, key) => at('idempotency', tenant, key),
    recent: (tenant, name) => at('recent', tenant, name),
    logs: (tenant, name) => at('logs', tenant, name),
    logsChannel: (tenant, name) => at('logs', tenant, name, 'live'),
    runtimes: at('runtimes'),
    alive: (runtimeId) => at('runtime', runtimeId, 'alive'),
    cancels: (runtimeId) => at('runtime', runtimeId, 'cancels'),
    cancelChannel: (runtimeId) => at('runtime', runtimeId, 'cancel-channel'),
    functions: (tenant) => at('functions', tenant),
    function: (tenant, name) => at('function', tenant, name),
    blob: (hash) => at('blob', hash),
    blobUsers: (hash) => at('blob', hash, 'users'),
    build: (id) => at('build', id),
    buildChannel: (id) => at('build', id, 'channel'),
    reply: (token) => at('reply', token),
    storedValues: (tenant) => at('store', tenant, 'values'),
    storedNames: (tenant) => at('store', tenant, 'names'),
    storedExpiries: (tenant) => at('store', tenant, 'expiries'),
    storedUsage: (tenant) => at('store', tenant, 'usage'),
    storedSweeps: at('store-sweeps'),
    topic: (tenant, name) => at('topic', tenant, name),
    broadcastChannel: (processId) => at('broadcasts', processId),
    line: (tenant, name) => at('line', tenant, name, 'messages'),
    lineState: (tenant, name) => at('line', tenant, name, 'state'),
    linesUsage: (tenant) => at('lines', tenant, 'usage'),
    linesExpiries: (tenant) => at('lines', tenant, 'expiries'),
    lineChannel: (tenant, name) => at('line', tenant, name, 'channel'),
  };
}
