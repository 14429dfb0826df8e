/**
 * Every Redis key and channel of the platform, in one place. The prefix keeps tests and two copies on one Redis apart; wrap it in braces
 * (`{pie}`) to keep all keys in one slot of a Redis Cluster.
 */
export interface Keys {
  readonly prefix: string;
  /** Prefix of BullMQ's own keys: `<bull>:<queue name>:<kind>`. */
  readonly bull: string;
  /** The queue of invocations among them. */
  readonly jobs: string;
  /** Who is admitted: `<admission>:<part>`, see `admission/scripts/include/admission.lua`. */
  readonly admission: string;
  /** Hash: KV pages that past runs of a function version held. */
  learnedPages(tenant: string, name: string, version: string): string;
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
  /** Sorted set: a tenant's line: its invocations that wait to be admitted, by arrival. */
  waiting(tenant: string): string;
  /** Sorted set: invocations that have not ended, by deadline (ms since the epoch). */
  readonly deadlines: string;
  /** String: id of the invocation made with an idempotency key, a space, and a hash of its function and body. */
  idempotency(tenant: string, key: string): string;
  /**
   * Sorted sets of a tenant's invocations by submission time: `<listing>:open` those that have not ended, `<listing>:ended` the last ones that
   * have; `<listing>:of:<function>:open` and `…:ended` those of one function.
   */
  listing(tenant: string): string;
  /** String with a TTL: how an invocation ended (event, a space, data), when that is kept for longer than its events. */
  outcome(id: string): string;
  /** Sorted set: ended invocations whose webhook is not yet in its queue, by end (ms since the epoch). */
  readonly webhooks: string;
  /** Channel: something was added to that set. */
  readonly webhooksChannel: string;
  /** String: a tenant's sealed secret for signing webhooks. */
  webhookSecret(tenant: string): string;
  /** Stream: log lines of a function, over all its invocations. */
  logs(tenant: string, name: string): string;
  /** Channel: something was added to that stream. */
  logsChannel(tenant: string, name: string): string;
  /** Hash: GPU hosts that take nothing new, name to JSON. */
  readonly drained: string;
  /** Channel: that hash has changed. */
  readonly drainedChannel: string;
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
  /** Hash: a function's versions (`version:<version>` to JSON) and aliases (`alias:<alias>` to JSON). */
  function(tenant: string, name: string): string;
  /** List: past states of an alias, newest first, the present one included. */
  aliasHistory(tenant: string, name: string, alias: string): string;
  /** Hash: removed versions of a function that still drain, version to JSON. */
  removedVersions(tenant: string, name: string): string;
  /** Set: invocations of a function version that have not ended. */
  unfinished(tenant: string, name: string, version: string): string;
  /** Hash: how a function version has behaved, by the tenant that ran it, to JSON; it expires while nothing is quarantined. */
  conduct(owner: string, name: string, version: string): string;
  /**
   * Hash: functions with removed versions, `<tenant>/<name>` to `drain`, and of these versions those whose invocations are to be cancelled,
   * `<tenant>/<name>@<version>` to `now`.
   */
  readonly removals: string;
  /** String with a TTL: the invocations of such a function were cancelled a moment ago. */
  removalRound(member: string): string;
  /** Set: deployed functions, `<tenant>/<name>`. */
  readonly deployed: string;
  /** Channel: the versions that aliases serve have changed; `<tenant>/<name>`. */
  readonly releaseChannel: string;
  /** String: the bytes of a component. */
  blob(hash: string): string;
  /** Set: function versions that use a component. */
  blobUsers(hash: string): string;
  /** String with a TTL: the reply to a build request. */
  build(id: string): string;
  /** Channel: that reply is there. */
  buildChannel(id: string): string;
  /** Hash: turns of builds that were asked for and have not ended, see `builds/scripts/take-turn.lua`. */
  readonly buildTurns: string;
  /** String with a TTL: what a script answered a call that may be sent twice. */
  reply(token: string): string;
  /** Set: names of all tenants. */
  readonly tenants: string;
  /** Hash: a tenant: `createdAt`, `weight` (1 to 1,000; 100 when absent), `suspended` (`1`, else not). */
  tenant(name: string): string;
  /** Hash: the record of an API key, by the sha256 of the key. */
  apiKey(sha256: string): string;
  /** Hash: the API keys of a tenant, id to sha256. */
  apiKeys(tenant: string): string;
  /** Stream: administrative acts, of all tenants without one. */
  audit(tenant?: string): string;
  /** Stream: those about tenants, keys, quotas and secrets of webhooks, bounded apart. */
  guardedAudit(tenant?: string): string;
  /** Hash: a tenant's secrets, name to `{"revision", "changedAt", "changedBy"}`; field `` (empty) counts the revisions given out. */
  secrets(tenant: string): string;
  /** Hash: their sealed values, `<name>@<revision>` to text. */
  secretValues(tenant: string): string;
  /** Hash: revisions that a deploy under way needs, `<name>@<revision>` to how long (ms since the epoch). */
  secretPins(tenant: string): string;
  /**
   * What the keys of a tenant's quotas and usage begin with; scripts know their ends. Hashes: `:quotas` limits by quota, `:quota-notes` who set
   * them, `:open` invocations of clients that have not ended by function (`*` for all), `:components` and `:disk` bytes by version,
   * `:redis` and `:redis-ends` bytes in Redis (`quotas/scripts/include/account.lua`), and `:usage:…` counters
   * (`usage/scripts/include/counters.lua`). The tenant `*` stands for what all have by default.
   */
  account(tenant: string): string;
  /** Hash: when accounts were last held against what they are made of, and how far that has come. */
  readonly accountRepairs: string;
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
  /** Hash: what each process has measured last, process to JSON text. */
  readonly metrics: string;
  /** Sorted set: the same processes, by when that is no longer true (ms since the epoch). */
  readonly metricsExpiries: string;
  /** Channel: something was put into a line. */
  lineChannel(tenant: string, name: string): string;
}

/** Name of the BullMQ queue of invocations. */
export const INVOCATION_QUEUE = 'invocations';
/** Name of the BullMQ queue of build requests. */
export const BUILD_QUEUE = 'builds';
/** Name of the BullMQ queue of webhook deliveries. */
export const WEBHOOK_QUEUE = 'webhooks';

/** Key names under a prefix. */
export function createKeys(prefix = 'pie'): Keys {
  const at = (...parts: string[]) => [prefix, ...parts].join(':');
  return {
    prefix,
    bull: at('bull'),
    jobs: at('bull', INVOCATION_QUEUE),
    admission: at('admission'),
    learnedPages: (tenant, name, version) => at('admission', 'learned', tenant, name, version),
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
    listing: (tenant) => at('listing', tenant),
    outcome: (id) => at('invocation', id, 'outcome'),
    webhooks: at('webhooks'),
    webhooksChannel: at('webhooks', 'channel'),
    webhookSecret: (tenant) => at('webhook-secret', tenant),
    logs: (tenant, name) => at('logs', tenant, name),
    logsChannel: (tenant, name) => at('logs', tenant, name, 'live'),
    drained: at('drained'),
    drainedChannel: at('drained', 'channel'),
    runtimes: at('runtimes'),
    alive: (runtimeId) => at('runtime', runtimeId, 'alive'),
    cancels: (runtimeId) => at('runtime', runtimeId, 'cancels'),
    cancelChannel: (runtimeId) => at('runtime', runtimeId, 'cancel-channel'),
    functions: (tenant) => at('functions', tenant),
    function: (tenant, name) => at('function', tenant, name),
    aliasHistory: (tenant, name, alias) => at('function', tenant, name, 'history', alias),
    removedVersions: (tenant, name) => at('function', tenant, name, 'removed'),
    unfinished: (tenant, name, version) => at('function', tenant, name, 'unfinished', version),
    conduct: (owner, name, version) => at('function', owner, name, 'conduct', version),
    removals: at('removals'),
    removalRound: (member) => at('removals', 'round', member),
    deployed: at('deployed'),
    releaseChannel: at('releases'),
    blob: (hash) => at('blob', hash),
    blobUsers: (hash) => at('blob', hash, 'users'),
    build: (id) => at('build', id),
    buildChannel: (id) => at('build', id, 'channel'),
    buildTurns: at('build-turns'),
    reply: (token) => at('reply', token),
    tenants: at('tenants'),
    tenant: (name) => at('tenant', name),
    apiKey: (sha256) => at('key', sha256),
    apiKeys: (tenant) => at('tenant-keys', tenant),
    audit: (tenant) => (tenant === undefined ? at('audit') : at('audit', tenant)),
    guardedAudit: (tenant) => (tenant === undefined ? at('guarded-audit') : at('guarded-audit', tenant)),
    secrets: (tenant) => at('secrets', tenant),
    secretValues: (tenant) => at('secrets', tenant, 'values'),
    secretPins: (tenant) => at('secrets', tenant, 'pins'),
    account: (tenant) => at('account', tenant),
    accountRepairs: at('account-repairs'),
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
    metrics: at('metrics'),
    metricsExpiries: at('metrics', 'expiries'),
    lineChannel: (tenant, name) => at('line', tenant, name, 'channel'),
  };
}
