import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, processName } from './config.ts';
import { connectRedis } from './redis.ts';
import type { RedisSettings } from './redis-settings.ts';
import { GPU_HOST_READY_MS, gpuHostWaitMs, RUNTIME } from './runtimes.ts';
import { INDEX_HOST } from './storage-settings.ts';
import type { ChildSpec } from './supervisor/child.ts';
import type { WatchLimits } from './supervisor/watch-policy.ts';

const READY_TIMEOUT_MS = 60_000;
/** Longest load of a snapshot, which takes Redis about ten seconds a gigabyte. */
const SNAPSHOT_READY_TIMEOUT_MS = 600_000;
/** Load time per MB of a private Redis. It is longer than for a snapshot, because Redis also loads the log of later writes, command by command. */
const LOG_READY_MS_PER_MB = 60;
/** Time that a process has to stop, beyond its drain. */
const STOP_MARGIN_MS = 3000;

/**
 * Limits for the runtimes and the gateway. A runtime whose event loop does not turn for longer than its lease (two seconds) has lost the lease,
 * and every invocation that it ran. The longest measured times under 896 inferlets at once were 33 ms of computing, and 0.3 s of standing still
 * on an overloaded machine.
 */
const WATCH: WatchLimits = { everyMs: 250, computingMs: 2000, stillMs: 3000 };
/**
 * On the CPU, a GPU host computes steps on its main thread, of about 5 s at most, and opens a second copy of a large model's head when a state is
 * first projected. Peers of the host wait as long for a step: `LONGEST_STEP_MS` of gpu-host/protocol.
 */
const WATCH_GPU_HOST: WatchLimits = { everyMs: 250, computingMs: 60_000, stillMs: 10_000 };

/** An index host reads and writes the graph of a large index in one call. */
const WATCH_INDEX_HOST: WatchLimits = { everyMs: 250, computingMs: 10_000, stillMs: 10_000 };

/**
 * MiB of each of V8's two halves for young objects. By default, V8 lets them grow to 16 during a start and keeps them. With 4, all processes
 * together hold 140 MB less.
 */
const YOUNG_MIB = 4;

/** Variable that disables the watch when it is `off`: a debugger stops event loops. */
const WATCH_SWITCH = 'PIE_WATCHDOG';

/** The processes of one machine, without its private Redis. They start in parallel. */
export function machineProcesses(config: Config): ChildSpec[] {
  const env = { PIE_HOME: config.home, PIE_PORT: String(config.port), PIE_HOST: config.host };
  const isWatched = process.env[WATCH_SWITCH] !== 'off';
  const node = (
    name: string,
    file: string,
    times: { readyTimeoutMs: number; stopTimeoutMs: number; watch: WatchLimits },
    extra: NodeJS.ProcessEnv = {},
  ): ChildSpec => ({
    name,
    command: process.execPath,
    args: [`--max-semi-space-size=${YOUNG_MIB}`, '--enable-source-maps', file],
    env: { ...env, ...extra },
    ready: 'line',
    readyTimeoutMs: times.readyTimeoutMs,
    stop: 'signal',
    stopTimeoutMs: times.stopTimeoutMs,
    ...(isWatched && { watch: times.watch }),
  });
  const drainMs = config.drainMs + STOP_MARGIN_MS;
  const gpuHost = { readyTimeoutMs: GPU_HOST_READY_MS, stopTimeoutMs: STOP_MARGIN_MS, watch: WATCH_GPU_HOST };
  const runtime = { readyTimeoutMs: gpuHostWaitMs(config), stopTimeoutMs: drainMs, watch: WATCH };
  const gateway = { readyTimeoutMs: READY_TIMEOUT_MS, stopTimeoutMs: drainMs, watch: WATCH };
  const indexHost = { readyTimeoutMs: READY_TIMEOUT_MS, stopTimeoutMs: STOP_MARGIN_MS, watch: WATCH_INDEX_HOST };
  const { roles } = config.machine;
  const named = (name: string) => processName(config, name);
  return [
    ...config.gpuHosts.map(({ name, localName }) =>
      node(localName, 'gpu-host/main.ts', gpuHost, { PIE_GPU_HOST_NAME: name }),
    ),
    ...(roles.includes('runtime') ? [node(INDEX_HOST, 'index-host/main.ts', indexHost)] : []),
    ...(roles.includes('runtime')
      ? [node(RUNTIME, 'runtime/main.ts', runtime, { PIE_RUNTIME_ID: named(RUNTIME) })]
      : []),
    ...(roles.includes('gateway')
      ? [node('gateway', 'gateway/main.ts', gateway, { PIE_GATEWAY_ID: named('gateway') })]
      : []),
  ];
}

/** Stop order of {@link machineProcesses}: processes that serve clients stop first, processes that hold state last. */
export function stopStages(config: Config): string[][] {
  return [
    ['gateway', RUNTIME],
    [INDEX_HOST, ...config.gpuHosts.map((host) => host.localName)],
  ];
}

/**
 * redis-server cannot watch a lifeline, so a shell does: the shell ends Redis when the shell's standard input closes. When Redis dies, `wait`
 * returns and the shell ends too, so that the supervisor sees the death.
 */
const LIFELINE_SHELL = `exec 3<&0
"$@" </dev/null 3<&- &
redis=$!
(cat <&3 >/dev/null; kill -TERM $redis 2>/dev/null) &
watcher=$!
exec 3<&-
wait $redis
code=$?
kill $watcher 2>/dev/null
exit $code`;

/** The Redis of a machine that has its own. */
export function privateRedis(config: Config, { socket, maxMemoryMb }: RedisSettings & { kind: 'private' }): ChildSpec {
  const directory = path.join(config.home, 'redis');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const settings = {
    port: '0',
    unixsocket: socket,
    unixsocketperm: '700',
    dir: directory,
    appendonly: 'yes',
    appendfsync: 'everysec',
    save: '',
    // At this limit Redis refuses writes; without the limit, Redis could use up the machine's memory.
    maxmemory: `${maxMemoryMb}mb`,
    'maxmemory-policy': 'noeviction',
    // `pie backup` takes its snapshot as a replica. Redis would wait 5 s for further replicas.
    'repl-diskless-sync-delay': '0',
    // Records keep Redis' compact encoding: 0.8 KB instead of 2 KB.
    'hash-max-ziplist-value': '512',
    // The event log of a short invocation does not take a node of 4 KB.
    'stream-node-max-bytes': '1024',
    loglevel: 'notice',
    daemonize: 'no',
  };
  return redisServer(settings, config, READY_TIMEOUT_MS + maxMemoryMb * LOG_READY_MS_PER_MB);
}

/** A Redis that serves the file `snapshot.rdb` of a directory at a unix socket, and writes nothing. */
export function snapshotRedis(
  directory: string,
  socket: string,
): { readonly spec: ChildSpec; readonly redis: RedisSettings } {
  const redis: RedisSettings = { kind: 'private', socket, maxMemoryMb: 0 };
  const settings = {
    port: '0',
    unixsocket: socket,
    unixsocketperm: '700',
    dir: directory,
    dbfilename: 'snapshot.rdb',
    appendonly: 'no',
    save: '',
    daemonize: 'no',
  };
  return { spec: redisServer(settings, { redis }, SNAPSHOT_READY_TIMEOUT_MS), redis };
}

function redisServer(
  settings: Readonly<Record<string, string>>,
  config: Pick<Config, 'redis'>,
  readyTimeoutMs: number,
): ChildSpec {
  return {
    name: 'redis',
    command: '/bin/sh',
    args: [
      '-c',
      LIFELINE_SHELL,
      'redis',
      'redis-server',
      ...Object.entries(settings).flatMap(([key, value]) => [`--${key}`, value]),
    ],
    ready: (signal) => answersPing(config, signal),
    readyTimeoutMs,
    stop: 'lifeline',
    stopTimeoutMs: 10_000,
  };
}

async function answersPing(config: Pick<Config, 'redis'>, signal: AbortSignal): Promise<void> {
  const redis = connectRedis(config, { lazyConnect: true, maxRetriesPerRequest: 0, retryStrategy: () => null });
  redis.on('error', () => undefined); // One event per refused attempt; the loop below retries.
  try {
    while (!signal.aborted) {
      try {
        if (redis.status === 'wait' || redis.status === 'end') await redis.connect();
        await redis.ping();
        return;
      } catch {
        await sleep(20, undefined, { signal });
      }
    }
  } finally {
    redis.disconnect();
  }
}
