/** Name of the BullMQ queue of invocations. */
export const INVOCATION_QUEUE = 'invocations';
/** Name of the BullMQ queue of build requests. */
export const BUILD_QUEUE = 'builds';
/** Name of the BullMQ queue of schedules. */
export const SCHEDULE_QUEUE = 'schedules';
/** Name of the BullMQ queue of webhook deliveries. */
export const WEBHOOK_QUEUE = 'webhooks';

/**
 * The schema of Redis: every key and channel of the platform. A comment begins with the type and the lifetime of its key. `with a TTL` means
 * that Redis forgets the key by itself; `with a TTL after …` means that the key gets its TTL only at this event. All other keys stay until a script
 * removes them or their last entry. Scripts that get a prefix build the same names. Tests read this table and compare it with the keys in Redis.
 *
 * Processes of the release before use the same keys at the same time, so a name or field changes in two releases at least.
 *
 * @param prefix separates the tests or platforms that share one Redis. A prefix in braces (`{pie}`) keeps all keys in one slot of a Redis Cluster.
 */
export function createKeys(prefix = 'pie') {
  const at = (...parts: string[]) => [prefix, ...parts].join(':');
  return {
    prefix,
    /** Prefix of BullMQ's own keys: `<bull>:<queue name>:<kind>`. BullMQ's documentation has their types. */
    bull: at('bull'),
    /** Prefix of the keys of BullMQ's queue of invocations. */
    jobs: at('bull', INVOCATION_QUEUE),
    /** Prefix of the keys of admission. */
    admission: at('admission'),
    /**
     * Hash: what all runtimes offer.
     * - `slots`, `overcommit`, `first` (the first model by name), `pages:<model>` (`pages:#memory` is runtime memory in MiB, as in every list of
     *   pages), `reserve` (fraction kept for tenants that hold little)
     * - `pace`: while this many invocations are admitted, tenants with more than a few slots start no others. The exceptions are heads (the first
     *   invocation of a tenant's queue) with latency targets, and heads for which room is kept
     * - `starts`: maximum admitted invocations that have not begun; tenants with few slots and the others are counted separately
     * - `placement`: the setting of this name, present when a model is on several hosts. Such a model appears as `<model>@<host>`
     * - `apart:<runtime>`: what a runtime that takes no more jobs still holds; `leaving`: the number of such runtimes. When `leaving` is absent, no
     *   process has counted the runtimes yet
     */
    admissionCapacity: at('admission', 'capacity'),
    /**
     * Hash: the state of admission.
     * - `time` (virtual), `latest` (largest virtual finish time of any tenant), `order` (number of invocations admitted so far)
     * - `slots` and `pages:<model>`: what the admitted invocations take
     * - `settling`: SSCAN cursor of the settling in progress (an update of the heads of all tenants, in steps); `ownSlots`: maximum slots of a
     *   tenant that counts as one with few slots, at the beginning of the last settling
     * - `hosts` (version of the lists of GPU hosts), `countedAt` (time of the last count of all runtimes)
     * - `repairedAt`, `repairedTo` and `repairedTenants`: the last repair, see `repair` of `admission/admission.lua`
     */
    admissionState: at('admission', 'state'),
    /** Hash: admitted invocations, id to JSON: `tenant`, `at`, `share`, `pages`, `place` (a number that orders invocations that have not begun). */
    admitted: at('admission', 'ledger'),
    /** Set: admitted invocations that have not begun. */
    unbegun: at('admission', 'starting'),
    /** Set: those of `unbegun` that may use the reserve of slots. */
    unbegunReserveUsers: at('admission', 'startingFew'),
    /** Hash: admitted invocations that waited for memory, id to JSON: `at` (time of admission, ms), `pages` (the pages it waited for). */
    memoryClaims: at('admission', 'claims'),
    /**
     * Hash, with a TTL after the tenant has no invocation: what admission knows of a tenant.
     * - `running`, `finish` (virtual), `held:<model>`, `home:<model>` (its GPU host, see `admission/needs.lua`)
     * - for the head of its queue: `head`, `need`, `most` (the page limit that bounds `need`), `overtaken`, `short` (`pages` and `since`, present
     *   when the head was requeued for lack of memory), `latency` (1 when the head has latency targets)
     * - `displaced`: an earlier head without latency targets, in whose place a head with targets came; `displacedOvertaken`: how often it had been
     *   overtaken; `displacedKept`: 1 when room was kept for it
     */
    admissionTenant: (tenant: string) => at('admission', 'tenant', tenant),
    /** Set: tenants with invocations that wait or are admitted. */
    admissionTenants: at('admission', 'tenants'),
    /** Set: tenants that have admitted pages of a place (`<model>` or `<model>@<host>`), or whose head needs some: they share its pages. */
    sharers: (place: string) => at('admission', 'sharers', place),
    /** Sorted set: tenants whose own limits let their head start, by virtual start time. */
    startableTenants: at('admission', 'turns'),
    /** Sorted set: those of `startableTenants` that hold few slots, or whose head has latency targets. */
    reserveUsers: at('admission', 'modest'),
    /** Sorted set: those of `startableTenants` for whose head room is kept. */
    roomKeptTenants: at('admission', 'kept'),
    /** Hash: runtimes that take jobs, id to a JSON list, see `offerOf` in `admission/capacity.lua`; its header explains kinds, pools and places. */
    runtimeOffers: at('admission', 'offers'),
    /** Hash: kinds of runtimes, kind to a JSON list: number of runtimes, 0. */
    runtimeKinds: at('admission', 'kinds'),
    /** Hash: page pools, `<process of a GPU host> <place>` to a JSON list: number of runtimes that share the pool, and its pages. */
    pagePools: at('admission', 'pools'),
    /** Hash: place to a JSON list: number of its pools, and their pages before overcommit. */
    pagePlaces: at('admission', 'places'),
    /** Sorted set: the GPU hosts of a model. The score is the version of the list of hosts in which the host first appeared. */
    modelHosts: (model: string) => at('admission', 'hosts', model),
    /** Hash: runtimes that report the free memory of a place, id to the GPU host's process whose memory they report. */
    memoryReporters: (place: string) => at('admission', 'reporters', place),
    /**
     * Hash with a TTL: what past runs of a function version held: `runs` (their number), and for each model `peaks:<model>` (the last 64 peaks)
     * and `pages:<model>` (the 95th percentile of these peaks).
     */
    learnedPages: (tenant: string, name: string, version: string) => at('admission', 'learned', tenant, name, version),
    /** Hash, with a TTL after the end: the record of one invocation, see `parseRecord` in `invocations/invocations.ts`. */
    invocation: (id: string) => at('invocation', id),
    /** Stream, with a TTL after the end: the events of one invocation, one entry per write, ids `<number of its last event>-<epoch>`. */
    events: (id: string) => at('invocation', id, 'events'),
    /** Channel: events just appended to an invocation's stream. */
    live: (id: string) => at('invocation', id, 'live'),
    /** Channel: events of the invocations that one process submitted and follows; a message names the invocation. */
    submitter: (process: string) => at('submitter', process),
    /** List, with a TTL after the first message: messages of the client that the inferlet has not taken yet. */
    inbox: (id: string) => at('invocation', id, 'inbox'),
    /** Channel: a message arrived, or the inbox was closed. */
    inboxChannel: (id: string) => at('invocation', id, 'inbox-channel'),
    /** Hash, with a TTL after the end: the files of one invocation, name to `{"mediaType", "size"}`. */
    files: (id: string) => at('invocation', id, 'files'),
    /** Hash, with a TTL after the end: the contents of an invocation's files, name to bytes. */
    fileContents: (id: string) => at('invocation', id, 'file-contents'),
    /** Hash: `bytes` of a tenant's stored files, and by invocation id the bytes of its files. */
    fileUsage: (tenant: string) => at('file-usage', tenant),
    /** Sorted set: a tenant's ended invocations with files, by the time at which their files are forgotten (ms since the epoch). */
    fileExpiries: (tenant: string) => at('file-expiries', tenant),
    /** Hash: child invocations that have not ended, id to the runtime that runs them. */
    children: at('children'),
    /** String: the last arrival number given out. */
    arrivals: at('arrivals'),
    /** Sorted set: a tenant's queue (its invocations that wait for admission), by arrival number. */
    waiting: (tenant: string) => at('waiting', tenant),
    /** Sorted set: invocations that have not ended, by deadline (ms since the epoch). */
    deadlines: at('deadlines'),
    /** Sorted set: invocations that wait for a person, by the end of the wait. */
    questions: at('questions'),
    /** Set: a tenant's invocations that wait for a person. */
    tenantQuestions: (tenant: string) => at('questions', tenant),
    /** Sorted set: invocations that wait for the end of their debounce delay, by the time of that end. */
    debounced: at('debounced'),
    /** Hash: a tenant's waiting debounced invocations, by function and debounce key. */
    debounces: (tenant: string) => at('debounces', tenant),
    /** String with a TTL: id of the invocation made with an idempotency key, a space, and a hash of its function and body. */
    idempotency: (tenant: string, key: string) => at('idempotency', tenant, key),
    /** Prefix of the lists of a tenant's invocations by submission time. */
    listing: (tenant: string) => at('listing', tenant),
    /** Sorted set: a tenant's invocations that have not ended. */
    openList: (tenant: string) => at('listing', tenant, 'open'),
    /** Sorted set with a TTL: a tenant's last ended invocations. */
    endedList: (tenant: string) => at('listing', tenant, 'ended'),
    /** Sorted set: invocations of one function that have not ended. */
    openListOfFunction: (tenant: string, name: string) => at('listing', tenant, 'of', name, 'open'),
    /** Sorted set with a TTL: the last ended invocations of one function. */
    endedListOfFunction: (tenant: string, name: string) => at('listing', tenant, 'of', name, 'ended'),
    /** String with a TTL: how an invocation ended (event, a space, data); stored when this outcome is kept longer than the invocation's events. */
    outcome: (id: string) => at('invocation', id, 'outcome'),
    /** String with a TTL: the job of an ended invocation, with its input; absent for a large job and for a child. */
    input: (id: string) => at('invocation', id, 'input'),
    /**
     * Sorted set: ended invocations whose webhook is not yet in its queue, by end (ms since the epoch). An invocation
     * that could not be put into the queue has the time of the next try instead.
     */
    webhooks: at('webhooks'),
    /** Channel: an ended invocation was added to the set `webhooks`. */
    webhooksChannel: at('webhooks', 'channel'),
    /** String: a tenant's sealed secret for signing webhooks. */
    webhookSecret: (tenant: string) => at('webhook-secret', tenant),
    /** Stream with a TTL: log lines of a function, over all its invocations. */
    logs: (tenant: string, name: string) => at('logs', tenant, name),
    /** Channel: a line was added to a function's logs. */
    logsChannel: (tenant: string, name: string) => at('logs', tenant, name, 'live'),
    /** Hash: owners of a tenant's exports and KV files of a model, `<kind>/<name>` to JSON. */
    nameOwners: (tenant: string, model: string) => at('name-owners', tenant, model),
    /** Hash, to JSON: a tenant's exports and KV files with a copy in the shared directory, and names that a GPU host must still forget. */
    durableNames: (tenant: string) => at('durable-names', tenant),
    /** String: the platform's folder in the shared directory. */
    sharedFolder: at('shared-folder'),
    /** Hash: drained GPU hosts, which take no new invocations, name to JSON. */
    drained: at('drained'),
    /** Channel: the set of drained GPU hosts has changed. */
    drainedChannel: at('drained', 'channel'),
    /** Set: names of registered machines. */
    machines: at('machines'),
    /** String with a TTL: a machine's description as JSON, kept for a while after the machine has died. */
    machine: (name: string) => at('machine', name),
    /** String with a TTL: a machine's lease; the value is the id of the run of the supervisor that holds the machine's name. */
    machineLease: (name: string) => at('machine', name, 'lease'),
    /** String with a TTL: what a machine's supervisor last saw of its processes, as JSON (`MachineLooks`); as long as the lease. */
    machineLooks: (name: string) => at('machine', name, 'looks'),
    /** Set: fingerprints of the certificates of machines that an operator has removed. */
    removedMachines: at('machines', 'removed'),
    /** String with a TTL: name of the machine that has the certificate with this fingerprint. */
    machineCertificate: (fingerprint: string) => at('machines', 'certificate', fingerprint),
    /** Hash: machines that have joined with a token, name to JSON with the hash of their Redis password and their certificate. */
    joinedMachines: at('machines', 'joined'),
    /** String with a TTL: the key of a token with which one machine may join. */
    joinToken: (id: string) => at('machines', 'token', id),
    /**
     * String: the last restore that began to change the platform, until that restore ends well. While the key exists, no
     * machine starts and no running machine goes on.
     */
    restoreMark: at('machines', 'restoring'),
    /** String with a TTL: the restore that runs. While the key exists, no machine starts, but running machines go on. */
    restoreLease: at('machines', 'restoring', 'lease'),
    /** Channel: a machine has come, changed or gone. A message is its name, or `removalNotice` of its name. */
    machinesChannel: at('machines', 'channel'),
    /** String: id of the master key that the gateways use. */
    masterKey: at('master-key'),
    /** Hash: registered runtimes, id to JSON. */
    runtimes: at('runtimes'),
    /** String with a TTL: the runtime's lease, with its load as JSON. The runtime is alive while the key exists. */
    alive: (runtimeId: string) => at('runtime', runtimeId, 'alive'),
    /** String with a TTL: the free memory in the load of a runtime, MessagePack, see `readingsIn` in `admission/rules.lua`. */
    memoryReadings: (runtimeId: string) => at('runtime', runtimeId, 'readings'),
    /** Hash with a TTL: a runtime's last fetch of jobs: `token`; `jobs:<token>`, ids of its jobs. See `take-jobs` of `admission/jobs.lua`. */
    fetch: (runtimeId: string) => at('runtime', runtimeId, 'fetch'),
    /** Set: invocations whose jobs a runtime holds. */
    held: (runtimeId: string) => at('runtime', runtimeId, 'held'),
    /**
     * Hash: searches of reapers for dead runtimes: `at` (time of the last search), `since` (time of the first search after the last pause),
     * `living` (number of runtimes that lived at the last search).
     */
    looks: at('runtimes', 'looks'),
    /** Sorted set: registered runtimes, by the time until which their leases last at least (ms by the clock of Redis). */
    leaseChecks: at('runtimes', 'looks', 'checks'),
    /** Hash, with a TTL after a cancel: cancels requested of a runtime, invocation to reason. */
    cancels: (runtimeId: string) => at('runtime', runtimeId, 'cancels'),
    /** Channel: cancels for a runtime. */
    cancelChannel: (runtimeId: string) => at('runtime', runtimeId, 'cancel-channel'),
    /** Set: names of a tenant's functions. */
    functions: (tenant: string) => at('functions', tenant),
    /** Hash: a function's versions (`version:<version>` to JSON) and aliases (`alias:<alias>` to JSON). */
    function: (tenant: string, name: string) => at('function', tenant, name),
    /** List: states of an alias, newest first, the present one included. */
    aliasHistory: (tenant: string, name: string, alias: string) => at('function', tenant, name, 'history', alias),
    /** Hash: removed versions of a function that still drain, version to JSON. */
    removedVersions: (tenant: string, name: string) => at('function', tenant, name, 'removed'),
    /** Set: invocations of a function version that have not ended. */
    unfinished: (tenant: string, name: string, version: string) => at('function', tenant, name, 'unfinished', version),
    /**
     * Hash, with a TTL after each change: the losses of sandboxes in which a function version computed, tenant that ran it to JSON. No TTL while the
     * version is quarantined for a tenant.
     */
    conduct: (owner: string, name: string, version: string) => at('function', owner, name, 'conduct', version),
    /**
     * Hash: functions with removed versions, as `<tenant>/<name>` to `drain`; and removed versions whose invocations are to be cancelled, as
     * `<tenant>/<name>@<version>` to `now`.
     */
    removals: at('removals'),
    /** String with a TTL: mark of the last round of cancels for a member of `removals`. */
    removalRound: (member: string) => at('removals', 'round', member),
    /** Set: deployed functions, `<tenant>/<name>`. */
    deployed: at('deployed'),
    /** Channel: the versions that aliases serve have changed; `<tenant>/<name>`. */
    releaseChannel: at('releases'),
    /** String, with a TTL after an upload until a version uses it: the bytes of a component. */
    blob: (hash: string) => at('blob', hash),
    /** Set: function versions that use a component. */
    blobUsers: (hash: string) => at('blob', hash, 'users'),
    /** Set: hashes of the engines of scripts that runtimes have stored. */
    engines: at('engines'),
    /**
     * Set with a TTL: tenants that uploaded a component which no function version uses yet, each as the prefix of its account (`account`). The
     * component's bytes count in each of these accounts.
     */
    blobUploads: (hash: string) => at('blob', hash, 'uploads'),
    /** String with a TTL: the reply to a build request. */
    build: (id: string) => at('build', id),
    /** Channel: the reply to a build request is stored. */
    buildChannel: (id: string) => at('build', id, 'channel'),
    /**
     * Hash: turns of builds: of each unended build under its id, and of the last build that each tenant began under `began <tenant>`; `time` is
     * the largest turn that has begun.
     */
    buildTurns: at('build-turns'),
    /** String with a TTL: a script's reply to a call that may be sent twice. */
    reply: (token: string) => at('reply', token),
    /** Set: names of all tenants. */
    tenants: at('tenants'),
    /**
     * Hash: a tenant: `createdAt`, `weight` (1 to 1,000; 100 when absent), `suspended` (`1`, else not), `latency` (JSON of its targets; none
     * when empty or absent).
     */
    tenant: (name: string) => at('tenant', name),
    /** Hash, with a TTL after it got an expiry: an API key: `tenant`, `name`, `scopes`, `createdAt`, `expiresAt`, `lastUsedAt`. */
    apiKey: (sha256: string) => at('key', sha256),
    /** Hash: the API keys of a tenant, id to sha256. */
    apiKeys: (tenant: string) => at('tenant-keys', tenant),
    /** Stream: administrative acts on one tenant; without `tenant`, those of the whole platform. */
    audit: (tenant?: string) => (tenant === undefined ? at('audit') : at('audit', tenant)),
    /** Stream: acts on tenants, keys, quotas, webhook secrets, machines and GPU hosts, bounded separately. */
    guardedAudit: (tenant?: string) => (tenant === undefined ? at('guarded-audit') : at('guarded-audit', tenant)),
    /** Hash: a tenant's secrets, name to `{"revision", "changedAt", "changedBy"}`; field `` (empty) counts the revisions given out. */
    secrets: (tenant: string) => at('secrets', tenant),
    /** Hash: sealed values of a tenant's secrets, `<name>@<revision>` to text. */
    secretValues: (tenant: string) => at('secrets', tenant, 'values'),
    /** Hash: revisions that a running deploy needs, `<name>@<revision>` to the end of the pin (ms since the epoch). */
    secretPins: (tenant: string) => at('secrets', tenant, 'pins'),
    /** Prefix of the keys of a tenant's quotas and usage. The tenant `*` holds the defaults of all tenants. */
    account: (tenant: string) => at('account', tenant),
    /** Hash: limits by quota, see `quotas/limits.lua`. */
    quotaLimits: (tenant: string) => at('account', tenant, 'quotas'),
    /** Hash: author and reason of each limit, by quota. */
    quotaNotes: (tenant: string) => at('account', tenant, 'quota-notes'),
    /** Hash: number of unended invocations of clients, by function (`*` for all). */
    openCounts: (tenant: string) => at('account', tenant, 'open'),
    /** Hash: tokens granted to running attempts, see `quotas/limits.lua`. */
    tokenGrants: (tenant: string) => at('account', tenant, 'grants'),
    /** Set: unended invocations with granted latency targets. */
    latencyGrants: (tenant: string) => at('account', tenant, 'latency'),
    /** Hash: stored bytes of versions and their records, by `<function>@<version>`, and `bytes` of all. */
    versionBytes: (tenant: string) => at('account', tenant, 'components'),
    /** Hash: the bytes of the records alone, with the same fields. */
    versionRecordBytes: (tenant: string) => at('account', tenant, 'records'),
    /** Hash: the bytes of the compiled versions, which are on disk, with the same fields. */
    versionDiskBytes: (tenant: string) => at('account', tenant, 'disk'),
    /** Hash: bytes of content in Redis, by holder, and `bytes` of all; `quotas/account.lua` lists the holders. */
    redisBytes: (tenant: string) => at('account', tenant, 'redis'),
    /** Sorted set: holders in `redisBytes` that end by themselves, by the time of their end (ms since the epoch). */
    redisBytesEnds: (tenant: string) => at('account', tenant, 'redis-ends'),
    /** Hash with a TTL: counts of the last minute of use, by function (`*` for all), see `usage/usage.lua`. */
    latestUsage: (tenant: string) => at('account', tenant, 'usage', 'latest'),
    /** Hash with a TTL: counts of a minute, hour, day or month, by function (`*` for all). */
    usage: (tenant: string, window: string, number: string) => at('account', tenant, 'usage', window, number),
    /** Hash: repairs of accounts: `at` (time of the last), and the position in the scan of tenants (`cursor`, `passed`, `round`). */
    accountRepairs: at('account-repairs'),
    /**
     * Hash: `bytes` (the size of a tenant's vector indexes), `life` (id of the run of the index host that counted them), `sequence` (number of the
     * sum in that run), `before` (id of the run before).
     */
    indexSum: (tenant: string) => at('account', tenant, 'indexes'),
    /** String: name of the machine that has the vector indexes. */
    indexOwner: at('index-owner'),
    /** Hash: a tenant's stored values by key; before each value stands its version (8 bytes, big-endian). */
    storedValues: (tenant: string) => at('store', tenant, 'values'),
    /** Sorted set: the keys of a tenant's stored values, all with score 0, so that they sort by their bytes. */
    storedNames: (tenant: string) => at('store', tenant, 'names'),
    /** Sorted set: a tenant's stored keys that expire, by expiry (ms since the epoch). */
    storedExpiries: (tenant: string) => at('store', tenant, 'expiries'),
    /** Hash: `bytes` of a tenant's keys and values, and the last `version` given out. */
    storedUsage: (tenant: string) => at('store', tenant, 'usage'),
    /** Sorted set: tenants with stored keys that expire, by the earliest expiry (ms since the epoch). */
    storedSweeps: at('store-sweeps'),
    /** Hash: subscribers of a topic, channel of a process to `<subscriptions>:<generation>`. */
    topic: (tenant: string, name: string) => at('topic', tenant, name),
    /** Channel: broadcasts for the subscriptions of one process. */
    broadcastChannel: (processId: string) => at('broadcasts', processId),
    /** Sorted set with a TTL: messages of a message queue, by number. */
    messageQueue: (tenant: string, name: string) => at('line', tenant, name, 'messages'),
    /** Hash with a TTL: `bytes` of a message queue's messages, and the `last` number given out. */
    messageQueueState: (tenant: string, name: string) => at('line', tenant, name, 'state'),
    /** Hash: `bytes` of all message queues of a tenant, and the bytes of each queue by its key. */
    messageQueuesUsage: (tenant: string) => at('lines', tenant, 'usage'),
    /** Sorted set: keys of a tenant's message queues, by expiry (ms since the epoch). */
    messageQueuesExpiries: (tenant: string) => at('lines', tenant, 'expiries'),
    /** Set: a tenant's invocations with a concurrency key that have not ended. */
    concurrency: (tenant: string, key: string) => at('concurrency', tenant, key),
    /** Hash: a tenant's schedules, name to JSON text. */
    schedules: (tenant: string) => at('schedules', tenant),
    /** Set: tenants that have or had schedules. */
    scheduledTenants: at('scheduled-tenants'),
    /** String with a TTL: runs in a row of a job that began and did not end, because their process died (`CrashGuard`). */
    unendedRuns: (queue: string, job: string) => at('unended', queue, job),
    /** Hash: the last metrics of each process, process to JSON text. */
    metrics: at('metrics'),
    /** Sorted set: processes with metrics, by the expiry of those metrics (ms since the epoch). */
    metricsExpiries: at('metrics', 'expiries'),
    /** Channel: a message was put into a message queue. */
    messageQueueChannel: (tenant: string, name: string) => at('line', tenant, name, 'channel'),
  };
}

export type Keys = Readonly<ReturnType<typeof createKeys>>;

/** The keys that the scripts of a machine's registration take, in the order of `KEYS`. */
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
