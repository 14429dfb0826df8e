import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { redisCpuUs } from '../bare-queue.ts';
import type { Bench, BenchReport } from '../bench.ts';
import { inTurn } from '../rounds.ts';
import { format, formatSpread, spread } from '../statistics.ts';
import { Fleet, type FleetSize } from './fleet.ts';

const GATEWAYS = 2;
const SLOTS = 2;
const SMALL: FleetSize = { runtimes: 100, tenants: 1000, gateways: GATEWAYS, slots: SLOTS };
const LARGE: FleetSize = { runtimes: 1000, tenants: 10_000, gateways: GATEWAYS, slots: SLOTS };
/** Baseline and fleet. */
const SIZES = [SMALL, LARGE] as const;
const QUICK_SIZES: readonly [FleetSize, FleetSize] = [
  { ...SMALL, runtimes: 30, tenants: 300 },
  { ...LARGE, runtimes: 300, tenants: 3000 },
];
/** Time over which each load is measured. */
const WINDOW_MS = 15_000;
const QUICK_WINDOW_MS = 3000;
/** Time after a fleet's start and after its queues have filled, in which the last runtimes settle. */
const SETTLE_MS = 2000;
const QUICK_SETTLE_MS = 1000;
/** Interval of arrivals for free slots. In the turnover, the last of the four phases, an invocation ends and another arrives at this interval. */
const END_EVERY_MS = 10;
/** Invocations that arrive while slots are free, each of another tenant: fewer than the small fleet has slots. */
const ARRIVALS = 100;
const QUICK_ARRIVALS = 40;
/** Interval of reads of the registry, as by dashboards and scrapes. */
const READ_EVERY_MS = 1000;
const AIM_CORE = 0.05;
const AIM_MS = 1;

/** Work of Redis over one window. */
interface RedisLoad {
  /** CPU time of all threads of Redis over elapsed time: 1 is one busy core. */
  readonly core: number;
  readonly commandsPerSecond: number;
  /** 99th and 99.9th percentile of the time of one script, ms, rounded up by Redis. */
  readonly scriptP99Ms: number;
  readonly scriptP999Ms: number;
}

interface Sample {
  readonly size: FleetSize;
  /** Time that the fleet took to start. */
  readonly startupMs: number;
  readonly idle: RedisLoad;
  /** CPU of Redis from the arrival of a tenant's first invocation until the invocation has begun in a free slot, ms. */
  readonly firstMs: number;
  /** The same for a later invocation of the tenant. */
  readonly laterMs: number;
  readonly waiting: RedisLoad;
  readonly turnover: RedisLoad & { readonly ended: number; readonly begun: number };
  /** CPU of Redis for the whole life of one invocation of the turnover, beyond that of the same fleet without turnover, ms. */
  readonly lifeMs: number;
  /** Runtimes that were declared dead although they lived. */
  readonly lost: number;
}

/** Housekeeping and admission of a fleet whose runtimes run no code. */
export const fleet: Bench = {
  name: 'fleet',
  summary: '1,000 simulated runtimes and 10,000 tenants: CPU of Redis for housekeeping and for an admission',
  help: `Registers ${LARGE.runtimes} runtimes (their connections, leases, renewals, fetches and reapers, without sandboxes; each describes a GPU
host of its own) and ${GATEWAYS} gateways on a Redis of its own. Measures the CPU of Redis in four phases: without invocations; while ${ARRIVALS}
tenants' first invocations, and then their second ones, arrive for free slots and begin (the decision: creation, admission, fetch and begin); with
all slots taken and a queue of each of ${LARGE.tenants} tenants; and while every ${END_EVERY_MS} ms an invocation ends, the next one is admitted
and begins, and another is submitted. The baseline is a fleet of a tenth. A round measures both, in turns.`,
  quick: `${QUICK_SIZES.map(({ runtimes, tenants }) => `${runtimes} runtimes and ${tenants} tenants`).join(', and ')}, each load for ${QUICK_WINDOW_MS / 1000} s instead of ${WINDOW_MS / 1000}, and ${QUICK_ARRIVALS} arrivals instead of ${ARRIVALS}.`,
  async run({ repetitions, quick, progress }) {
    const sizes = quick ? QUICK_SIZES : SIZES;
    const times = quick
      ? { windowMs: QUICK_WINDOW_MS, settleMs: QUICK_SETTLE_MS, arrivalCount: QUICK_ARRIVALS }
      : { windowMs: WINDOW_MS, settleMs: SETTLE_MS, arrivalCount: ARRIVALS };
    const samples: Sample[] = [];
    for (let round = 0; round < repetitions; round++) {
      const sides = sizes.map((size) => async () => {
        const sample = await measure(size, times);
        progress(
          `round ${round + 1}, ${size.runtimes} runtimes: ${format(sample.startupMs / 1000, 1)} s to start, idle ${percent(sample.idle.core)}, ` +
            `waiting ${percent(sample.waiting.core)}, turnover ${percent(sample.turnover.core)} of a core, ${format(sample.laterMs, 3)} ms a decision, ${format(sample.lifeMs, 3)} ms a life`,
        );
        return sample;
      });
      samples.push(...(await inTurn(round, sides)));
    }
    return report(sizes, samples);
  },
};

interface Times {
  readonly windowMs: number;
  readonly settleMs: number;
  readonly arrivalCount: number;
}

const percent = (share: number): string => `${format(100 * share, 1)} %`;

async function measure(size: FleetSize, { windowMs, settleMs, arrivalCount }: Times): Promise<Sample> {
  const server = await TestRedis.start({ appendOnly: true });
  try {
    const startMs = performance.now();
    await using fleet = await Fleet.start(server, size);
    const startupMs = performance.now() - startMs;
    const redis = server.connect();
    await sleep(settleMs);
    const reading = every(READ_EVERY_MS, () => fleet.readRegistry());
    try {
      const idle = await workOver(redis, () => sleep(windowMs));
      const arrivals = async () => {
        const work = await workOver(redis, () => fleet.arrive(arrivalCount, END_EVERY_MS));
        await fleet.endAll();
        return ((work.core - idle.core) * work.elapsedMs) / arrivalCount;
      };
      const [firstMs, laterMs] = [await arrivals(), await arrivals()];
      await fleet.fill();
      await sleep(settleMs);
      const waiting = await workOver(redis, () => sleep(windowMs));
      const [begunBefore, endedBefore] = [fleet.begun, fleet.ended];
      const work = await workOver(redis, async () => {
        const turning = every(END_EVERY_MS, async () => {
          fleet.endOne();
          await fleet.submitOne();
        });
        await sleep(windowMs);
        await turning.stop();
      });
      const turnover = { ...work, ended: fleet.ended - endedBefore, begun: fleet.begun - begunBefore };
      fleet.check();
      if (turnover.ended === 0) throw new Error('no invocation ended');
      const extraMs = (work.core - waiting.core) * work.elapsedMs;
      const lifeMs = extraMs / turnover.ended;
      return { size, startupMs, idle, firstMs, laterMs, waiting, turnover, lifeMs, lost: fleet.lost };
    } finally {
      await reading.stop();
    }
  } finally {
    await server.stop();
  }
}

/** Calls `work` at fixed times until `stop`, even while earlier calls are pending. `stop` throws the first failure. */
function every(intervalMs: number, work: () => Promise<void>): { stop(): Promise<void> } {
  const pending = new Set<Promise<void>>();
  const failures: unknown[] = [];
  const startMs = performance.now();
  let startedCalls = 0;
  const timer = setInterval(() => {
    for (; startedCalls < (performance.now() - startMs) / intervalMs; startedCalls++) {
      const call = work()
        .catch((error) => void failures.push(error))
        .finally(() => pending.delete(call));
      pending.add(call);
    }
  }, intervalMs);
  return {
    async stop() {
      clearInterval(timer);
      await Promise.all(pending);
      if (failures.length > 0) throw failures[0];
    },
  };
}

async function workOver(
  redis: Redis,
  during: () => Promise<unknown>,
): Promise<RedisLoad & { readonly elapsedMs: number }> {
  await redis.config('RESETSTAT');
  const beforeUs = await redisCpuUs(redis);
  const startMs = performance.now();
  await during();
  const cpuUs = (await redisCpuUs(redis)) - beforeUs;
  const elapsedMs = performance.now() - startMs;
  const [stats, latencies] = [await redis.info('stats'), await redis.info('latencystats')];
  const commands = Number(/^total_commands_processed:(\d+)/m.exec(stats)?.[1]);
  const script = /^latency_percentiles_usec_evalsha:.*?p99=([\d.]+),p99.9=([\d.]+)/m.exec(latencies);
  return {
    elapsedMs,
    core: cpuUs / 1000 / elapsedMs,
    commandsPerSecond: (commands * 1000) / elapsedMs,
    scriptP99Ms: Number(script?.[1]) / 1000,
    scriptP999Ms: Number(script?.[2]) / 1000,
  };
}

function report([baseline, whole]: readonly [FleetSize, FleetSize], samples: readonly Sample[]): BenchReport {
  const rows = [baseline, whole].map((size) => {
    const ofSize = samples.filter((sample) => sample.size === size);
    const cellOf = (pick: (sample: Sample) => number, digits: number) => formatSpread(spread(ofSize.map(pick)), digits);
    return [
      `${size.runtimes}, ${size.tenants}`,
      cellOf(({ idle }) => 100 * idle.core, 1),
      cellOf(({ waiting }) => 100 * waiting.core, 1),
      cellOf(({ turnover }) => 100 * turnover.core, 1),
      cellOf(({ laterMs }) => laterMs, 3),
      cellOf(({ firstMs }) => firstMs, 3),
      cellOf(({ lifeMs }) => lifeMs, 3),
      cellOf(({ turnover }) => turnover.scriptP99Ms, 2),
      cellOf(({ startupMs }) => startupMs / 1000, 1),
      String(ofSize.reduce((sum, { lost }) => sum + lost, 0)),
    ];
  });
  const wholeSamples = samples.filter(({ size }) => size === whole);
  const baselineSamples = samples.filter(({ size }) => size === baseline);
  const over = (pick: (sample: Sample) => number) =>
    formatSpread(spread(wholeSamples.map((large, i) => pick(large) / pick(baselineSamples[i] ?? large))), 1);
  return {
    title: 'Redis under a fleet of simulated runtimes',
    header: [
      'runtimes, tenants',
      'idle, % of a core',
      'all waiting, % of a core',
      'turnover, % of a core',
      'decision, ms',
      'a first one, ms',
      'whole life, ms',
      'script p99, ms',
      'start, s',
      'leases lost',
    ],
    rows: [
      ...rows,
      [
        'large over small',
        over(({ idle }) => idle.core),
        over(({ waiting }) => waiting.core),
        over(({ turnover }) => turnover.core),
        over(({ laterMs }) => laterMs),
        over(({ firstMs }) => firstMs),
        over(({ lifeMs }) => lifeMs),
        over(({ turnover }) => turnover.scriptP99Ms),
        over(({ startupMs }) => startupMs),
        '',
      ],
    ],
    notes: [
      `${SLOTS} slots a runtime, a GPU host each, ${GATEWAYS} gateways; every process runs a reaper. Turnover: ${1000 / END_EVERY_MS} invocations end, are admitted, begin and arrive a second.`,
      `Idle and waiting: the CPU of Redis for housekeeping alone (aim at most ${100 * AIM_CORE} % of a core), with renewals, looks for jobs and a read of the registry a second.`,
      `Decision: CPU of Redis until an invocation that arrives for a free slot has begun (aim at most ${AIM_MS} ms), of a tenant that had one before. Each invocation chooses its GPU host among all. Whole life: in the turnover. Both without the housekeeping. Clients and Redis share the machine.`,
    ],
    data: samples,
  };
}
