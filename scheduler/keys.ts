/**
 * Every Redis key and channel of the platform. The prefix separates the tests or platforms that share one Redis. A
 * prefix in braces (`{pie}`) keeps all keys in one slot of a Redis Cluster.
 */
export interface Keys {
  readonly prefix: string;
  /** Prefix of BullMQ's own keys: `<bull>:<queue name>:<kind>`. */
  readonly bull: string;
  /** Prefix of the keys of BullMQ's queue of invocations. */
  readonly jobs: string;
  /** Prefix of the ledger of admitted invocations: `<admission>:<part>`, see `admission/scripts/include/admission.lua`. */
  readonly admission: string;
  /** Hash: KV pages and memory that past runs of a function version held. */
  learnedPages(tenant: string, name: string, version: string): string;
  /** Hash: the record of one invocation. */
  invocation(id: string): string;
  /** Stream: the events of one invocation, one entry per write, ids `<number of its last event>-<epoch>`. */
  events(id: string): string;
  /** Channel: events just appended to an invocation's stream. */
  live(id: string): string;
  /** Channel: events of the invocations that one process submitted and follows, each with its invocation. */
  submitter(process: string): string;
  /** List: messages of the client that the inferlet has not taken yet. */
  inbox(id: string): string;
  /** Channel: a message arrived, or the inbox was closed. */
  inboxChannel(id: string): string;
  /** Hash: the files of one invocation, name to `{"mediaType", "size"}`. */
  files(id: string): string;
  /** Hash: the contents of an invocation's files, name to bytes. */
  fileContents(id: string): string;
  /** Hash: `bytes` of a tenant's stored files, and by invocation id the bytes of its files. */
  fileUsage(tenant: string): string;
  /** Sorted set: a tenant's ended invocations with files, by the time at which their files are forgotten (ms since the epoch). */
  fileExpiries(tenant: string): string;
  /** Hash: child invocations that have not ended, id to the runtime that runs them. */
  readonly children: string;
  /** Counter: the last arrival number given out. */
  readonly arrivals: string;
  /** Sorted set, a tenant's queue: its invocations that wait for admission, by arrival number. */
  waiting(tenant: string): string;
  /** Sorted set: invocations that have not ended, by deadline (ms since the epoch). */
  readonly deadlines: string;
  /** Sorted set: invocations that wait for a person, by the end of the wait. */
  readonly questions: string;
  /** Set: a tenant's invocations that wait for a person. */
  tenantQuestions(tenant: string): string;
  /** Sorted set: invocations that wait for the end of their debounce delay, by its time. */
  readonly debounced: string;
  /** Hash: a tenant's waiting debounced invocations, by function and debounce key. */
  debounces(tenant: string): string;
  /** String: id of the invocation made with an idempotency key, a space, and a hash of its function and body. */
  idempotency(tenant: string, key: string): string;
  /**
   * Sorted sets of a tenant's invocations by submission time. `<listing>:open` holds those that have not ended, `<listing>:ended` the last
   * ones that have ended. `<listing>:of:<function>:open` and `…:ended` hold the same for one function.
   */
  listing(tenant: string): string;
  /** String with a TTL: how an invocation ended (event, a space, data), when it is kept longer than the invocation's events. */
  outcome(id: string): string;
  /** String with a TTL: the job of an ended invocation, with its input; absent for a large job and for a child. */
  input(id: string): string;
  /**
   * Sorted set: ended invocations whose webhook is not yet in its queue, by end (ms since the epoch). An invocation
   * that could not be put into the queue has the time of the next try instead.
   */
  readonly webhooks: string;
  /** Channel: an ended invocation was added to the set `webhooks`. */
  readonly webhooksChannel: string;
  /** String: a tenant's sealed secret for signing webhooks. */
  webhookSecret(tenant: string): string;
  /** Stream: log lines of a function, over all its invocations. */
  logs(tenant: string, name: string): string;
  /** Channel: a line was added to a function's logs. */
  logsChannel(tenant: string, name: string): string;
  /** Hash: owners of a tenant's exports and KV files of a model, `<kind>/<name>` to JSON. */
  nameOwners(tenant: string, model: string): string;
  /** Hash: copies of a tenant's exports and KV files in the shared directory, and names that a GPU host must still forget, to JSON. */
  durableNames(tenant: string): string;
  /** String: the platform's folder in the shared directory. */
  readonly sharedFolder: string;
  /** Hash: drained GPU hosts, which take no new invocations, name to JSON. */
  readonly drained: string;
  /** Channel: the set of drained GPU hosts has changed. */
  readonly drainedChannel: string;
  /** Set: names of registered machines. */
  readonly machines: string;
  /** String with a TTL: a machine's description as JSON, kept for a while after the machine has died. */
  machine(name: string): string;
  /** String with a TTL, a machine's lease: the life of the supervisor that holds its name. */
  machineLease(name: string): string;
  /** Set: fingerprints of the certificates of machines that an operator has removed. */
  readonly removedMachines: string;
  /** String with a TTL: name of the machine that has the certificate with this fingerprint. */
  machineCertificate(fingerprint: string): string;
  /** Hash: machines that have joined with a token, name to JSON with the hash of their Redis password and their certificate. */
  readonly joinedMachines: string;
  /** String with a TTL: the key of a token with which one machine may join. */
  joinToken(id: string): string;
  /**
   * String: the last restore that began to change the platform, until that restore ends well. While the key exists, no
   * machine starts and no running machine goes on.
   */
  readonly restoreMark: string;
  /** String with a TTL: the restore that runs. While the key exists, no machine starts, but running machines go on. */
  readonly restoreLease: string;
  /** Channel: a machine has come, changed or gone. A message is its name, or `removalNotice` of its name. */
  readonly machinesChannel: string;
  /** String: id of the master key that the gateways use. */
  readonly masterKey: string;
  /** Hash: registered runtimes, id to JSON. */
  readonly runtimes: string;
  /** String with a TTL, the runtime's lease: its load as JSON. The runtime is alive while the key exists. */
  alive(runtimeId: string): string;
  /** Hash with a TTL: a runtime's last fetch of jobs, see `admission/scripts/take-jobs.lua`. */
  fetch(runtimeId: string): string;
  /** Set: invocations whose jobs a runtime holds. */
  held(runtimeId: string): string;
  /** Hash: the times at which reapers looked for dead runtimes, see `runtimes/scripts/due.lua`. */
  readonly looks: string;
  /** Hash: cancels requested of a runtime, invocation to reason. */
  cancels(runtimeId: string): string;
  /** Channel: cancels for a runtime. */
  cancelChannel(runtimeId: string): string;
  /** Set: names of a tenant's functions. */
  functions(tenant: string): string;
  /** Hash: a function's versions (`version:<version>` to JSON) and aliases (`alias:<alias>` to JSON). */
  function(tenant: string, name: string): string;
  /** List: states of an alias, newest first, the present one included. */
  aliasHistory(tenant: string, name: string, alias: string): string;
  /** Hash: removed versions of a function that still drain, version to JSON. */
  removedVersions(tenant: string, name: string): string;
  /** Set: invocations of a function version that have not ended. */
  unfinished(tenant: string, name: string, version: string): string;
  /** Hash: how a function version has behaved, tenant that ran it to JSON. The key expires unless a tenant's use is quarantined. */
  conduct(owner: string, name: string, version: string): string;
  /**
   * Hash: functions with removed versions, `<tenant>/<name>` to `drain`; and removed versions whose invocations are to be cancelled,
   * `<tenant>/<name>@<version>` to `now`.
   */
  readonly removals: string;
  /** String with a TTL: mark of the last round of cancels for a member of `removals`. */
  removalRound(member: string): string;
  /** Set: deployed functions, `<tenant>/<name>`. */
  readonly deployed: string;
  /** Channel: the versions that aliases serve have changed; `<tenant>/<name>`. */
  readonly releaseChannel: string;
  /** String: the bytes of a component. */
  blob(hash: string): string;
  /** Set: function versions that use a component. */
  blobUsers(hash: string): string;
  /**
   * Set with a TTL: prefixes of the accounts (`account`) of tenants that uploaded a component which no function version uses yet. Its bytes count
   * in each of these accounts.
   */
  blobUploads(hash: string): string;
  /** String with a TTL: the reply to a build request. */
  build(id: string): string;
  /** Channel: the reply to a build request is stored. */
  buildChannel(id: string): string;
  /** Hash: turns of builds that were requested and have not ended, see `builds/scripts/take-turn.lua`. */
  readonly buildTurns: string;
  /** String with a TTL: a script's reply to a call that may be sent twice. */
  reply(token: string): string;
  /** Set: names of all tenants. */
  readonly tenants: string;
  /**
   * Hash: a tenant: `createdAt`, `weight` (1 to 1,000; 100 when absent), `suspended` (`1`, else not), `latency` (JSON of its targets; none
   * when empty or absent).
   */
  tenant(name: string): string;
  /** Hash: the record of an API key, by the sha256 of the key. */
  apiKey(sha256: string): string;
  /** Hash: the API keys of a tenant, id to sha256. */
  apiKeys(tenant: string): string;
  /** Stream: administrative acts on one tenant; without `tenant`, those of the whole platform. */
  audit(tenant?: string): string;
  /** Stream: acts on tenants, keys, quotas, webhook secrets, machines and GPU hosts, bounded separately. */
  guardedAudit(tenant?: string): string;
  /** Hash: a tenant's secrets, name to `{"revision", "changedAt", "changedBy"}`; field `` (empty) counts the revisions given out. */
  secrets(tenant: string): string;
  /** Hash: sealed values of a tenant's secrets, `<name>@<revision>` to text. */
  secretValues(tenant: string): string;
  /** Hash: revisions that a running deploy needs, `<name>@<revision>` to the end of the pin (ms since the epoch). */
  secretPins(tenant: string): string;
  /**
   * Prefix of the keys of a tenant's quotas and usage; the scripts append the rest. Hashes: `:quotas` limits by quota, `:quota-notes`
   * author and reason of each, `:open` unfinished client invocations by function (`*` for all), `:components`, `:records` and `:disk` bytes by
   * version, `:indexes` the bytes of its vector indexes, `:redis` and `:redis-ends` bytes in Redis (`quotas/scripts/include/account.lua`), and
   * `:usage:…` counters (`usage/scripts/include/counters.lua`). The tenant `*` holds the defaults of all tenants.
   */
  account(tenant: string): string;
  /**
   * Hash: time of the last repair of accounts, and the position in the scan of tenants from which the next repair goes
   * on (`repair-accounts.lua`).
   */
  readonly accountRepairs: string;
  /**
   * Hash: `bytes` of a tenant's vector indexes, the id of the run of the index host that counted them (`life`), the
   * number of the sum in that run (`sequence`), and the id of the run before (`before`). Earlier releases stored a time
   * (`at`) in place of the run.
   */
  indexSum(tenant: string): string;
  /** String: name of the machine that has the vector indexes. */
  readonly indexOwner: string;
  /** Hash: a tenant's stored values by key; before each value stands its version (8 bytes, big-endian). */
  storedValues(tenant: string): string;
  /** Sorted set: the keys of a tenant's stored values, all with score 0, so that they sort by their bytes. */
  storedNames(tenant: string): string;
  /** Sorted set: a tenant's stored keys that expire, by expiry (ms since the epoch). */
  storedExpiries(tenant: string): string;
  /** Hash: `bytes` of a tenant's keys and values, and the last `version` given out. */
  storedUsage(tenant: string): string;
  /** Sorted set: tenants with stored keys that expire, by the earliest expiry (ms since the epoch). */
  readonly storedSweeps: string;
  /** Hash: subscribers of a topic, channel of a process to `<subscriptions>:<generation>`. */
  topic(tenant: string, name: string): string;
  /** Channel: broadcasts for the subscriptions of one process. */
  broadcastChannel(processId: string): string;
  /** Sorted set: messages of a message queue, by number. */
  messageQueue(tenant: string, name: string): string;
  /** Hash: `bytes` of a message queue's messages, and the `last` number given out. */
  messageQueueState(tenant: string, name: string): string;
  /** Hash: `bytes` of all message queues of a tenant, and the bytes of each queue by its key. */
  messageQueuesUsage(tenant: string): string;
  /** Sorted set: keys of a tenant's message queues, by expiry (ms since the epoch). */
  messageQueuesExpiries(tenant: string): string;
  /** Set: a tenant's invocations with a concurrency key that have not ended. */
  concurrency(tenant: string, key: string): string;
  /** Hash: a tenant's schedules, name to JSON text. */
  schedules(tenant: string): string;
  /** Set: tenants that have or had schedules. */
  readonly scheduledTenants: string;
  /** Hash: the last metrics of each process, process to JSON text. */
  readonly metrics: string;
  /** Sorted set: processes with metrics, by the expiry of those metrics (ms since the epoch). */
  readonly metricsExpiries: string;
  /** Channel: a message was put into a message queue. */
  messageQueueChannel(tenant: string, name: string): string;
}

/** Name of the BullMQ queue of invocations. */
export const INVOCATION_QUEUE = 'invocations';
/** Name of the BullMQ queue of build requests. */
export const BUILD_QUEUE = 'builds';
/** Name of the BullMQ queue of schedules. */
export const SCHEDULE_QUEUE = 'schedules';
/** Name of the BullMQ queue of webhook deliveries. */
export const WEBHOOK_QUEUE = 'webhooks';

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
    submitter: (process) => at('submitter', process),
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
    debounced: at('debounced'),
    questions: at('questions'),
    tenantQuestions: (tenant) => at('questions', tenant),
    debounces: (tenant) => at('debounces', tenant),
    idempotency: (tenant, key) => at('idempotency', tenant, key),
    listing: (tenant) => at('listing', tenant),
    outcome: (id) => at('invocation', id, 'outcome'),
    input: (id) => at('invocation', id, 'input'),
    webhooks: at('webhooks'),
    webhooksChannel: at('webhooks', 'channel'),
    webhookSecret: (tenant) => at('webhook-secret', tenant),
    logs: (tenant, name) => at('logs', tenant, name),
    logsChannel: (tenant, name) => at('logs', tenant, name, 'live'),
    nameOwners: (tenant, model) => at('name-owners', tenant, model),
    durableNames: (tenant) => at('durable-names', tenant),
    sharedFolder: at('shared-folder'),
    drained: at('drained'),
    drainedChannel: at('drained', 'channel'),
    machines: at('machines'),
    machine: (name) => at('machine', name),
    machineLease: (name) => at('machine', name, 'lease'),
    removedMachines: at('machines', 'removed'),
    machineCertificate: (fingerprint) => at('machines', 'certificate', fingerprint),
    joinedMachines: at('machines', 'joined'),
    joinToken: (id) => at('machines', 'token', id),
    restoreMark: at('machines', 'restoring'),
    restoreLease: at('machines', 'restoring', 'lease'),
    machinesChannel: at('machines', 'channel'),
    masterKey: at('master-key'),
    runtimes: at('runtimes'),
    alive: (runtimeId) => at('runtime', runtimeId, 'alive'),
    fetch: (runtimeId) => at('runtime', runtimeId, 'fetch'),
    held: (runtimeId) => at('runtime', runtimeId, 'held'),
    looks: at('runtimes', 'looks'),
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
    blobUploads: (hash) => at('blob', hash, 'uploads'),
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
    indexSum: (tenant) => `${at('account', tenant)}:indexes`,
    indexOwner: at('index-owner'),
    storedValues: (tenant) => at('store', tenant, 'values'),
    storedNames: (tenant) => at('store', tenant, 'names'),
    storedExpiries: (tenant) => at('store', tenant, 'expiries'),
    storedUsage: (tenant) => at('store', tenant, 'usage'),
    storedSweeps: at('store-sweeps'),
    topic: (tenant, name) => at('topic', tenant, name),
    broadcastChannel: (processId) => at('broadcasts', processId),
    messageQueue: (tenant, name) => at('line', tenant, name, 'messages'),
    messageQueueState: (tenant, name) => at('line', tenant, name, 'state'),
    messageQueuesUsage: (tenant) => at('lines', tenant, 'usage'),
    messageQueuesExpiries: (tenant) => at('lines', tenant, 'expiries'),
    concurrency: (tenant, key) => at('concurrency', tenant, key),
    schedules: (tenant) => at('schedules', tenant),
    scheduledTenants: at('scheduled-tenants'),
    metrics: at('metrics'),
    metricsExpiries: at('metrics', 'expiries'),
    messageQueueChannel: (tenant, name) => at('line', tenant, name, 'channel'),
  };
}

/** The keys that the scripts of a machine's registration take, in their order. */
export const machineKeys = (keys: Keys, name: string, fingerprint = ''): string[] => [
  keys.machines,
  keys.machine(name),
  keys.machineLease(name),
  keys.machinesChannel,
  keys.removedMachines,
  keys.machineCertificate(fingerprint),
  keys.joinedMachines,
  keys.restoreMark,
  keys.restoreLease,
];
