import type { Attributes, Meter } from '@opentelemetry/api';
import { MAX_OWNERS, type MetricFamily, OTHER, parseFamilies } from '#infra/telemetry/family.ts';
import { type ProcessFamilies, prometheusText } from '#infra/telemetry/prometheus.ts';
import type { TenantLoad } from '#scheduler/admission/admission.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { WEBHOOK_OUTCOMES, type WebhookOutcome } from '#scheduler/webhooks/webhooks.ts';
import type { MetricsPage } from '../app/context.ts';
import type { Bodies } from '../app/http/bodies.ts';
import type { OpenStreams } from '../app/http/open-streams.ts';
import { gpuHostsOf } from './gpu-hosts.ts';
import type { Connections } from './http/connections.ts';

type WatchedParts = Pick<Scheduler, 'queue' | 'runtimes' | 'admission' | 'store'>;
type Load = Pick<TenantLoad, 'tenant' | 'waiting' | 'running'>;

export interface PlatformMetricsOptions {
  readonly scheduler: Pick<Scheduler, 'metrics'>;
  /** Name of this gateway's process. */
  readonly process: string;
  /** This gateway's own measurements, now. */
  readonly collect: () => Promise<readonly MetricFamily[]>;
  readonly public: boolean;
}

/** All measurements of the platform: this gateway's own, and those that the other processes have stored in Redis lately. */
export function platformMetrics({ scheduler, process, collect, ...options }: PlatformMetricsOptions): MetricsPage {
  const readOthers = async (): Promise<ProcessFamilies[] | null> => {
    try {
      const snapshots = (await scheduler.metrics.read()).filter((snapshot) => snapshot.process !== process);
      return snapshots.map(({ process: name, text }) => ({ process: name, families: parseFamilies(text) ?? [] }));
    } catch {
      // `pie.redis.up` reports the failure.
      return null;
    }
  };
  const page = async (): Promise<string> => {
    const [own, rest] = await Promise.all([collect(), readOthers()]);
    const redisUp: MetricFamily = {
      name: 'pie.redis.up',
      unit: '{redis}',
      description: '1 while Redis answers this gateway, else 0.',
      kind: 'gauge',
      points: [{ labels: {}, value: rest === null ? 0 : 1 }],
    };
    return prometheusText([{ process, families: [...own, redisUp] }, ...(rest ?? [])]);
  };
  let pendingPage: Promise<string> | undefined;
  return {
    public: options.public,
    // Concurrent readers share one page.
    text: () => {
      pendingPage ??= page().finally(() => {
        pendingPage = undefined;
      });
      return pendingPage;
    },
  };
}

/** Measures queue, admission, runtimes, GPU hosts and Redis at each read. The page lacks these measurements while Redis does not answer. */
export function watchPlatform(meter: Meter, { queue, runtimes, admission, store }: WatchedParts): void {
  const gauge = (
    name: string,
    unit: string,
    description: string,
    read: (observe: (value: number, labels: Attributes) => void) => Promise<void>,
  ) =>
    meter
      .createObservableGauge(name, { unit, description })
      .addCallback((result) => read((value, labels) => result.observe(value, labels)));

  gauge('pie.queue.depth', '{invocation}', 'Invocations that wait or run.', async (observe) => {
    const { waiting, active } = await queue.depth();
    observe(waiting, { state: 'waiting' });
    observe(active, { state: 'running' });
  });
  gauge('pie.queue.tenant', '{invocation}', 'Invocations of a tenant that wait or are admitted.', async (observe) => {
    for (const { tenant, waiting, running } of withOthers(await admission.tenants())) {
      observe(waiting, { tenant, state: 'waiting' });
      observe(running, { tenant, state: 'admitted' });
    }
  });
  gauge('pie.admission.slots', '{invocation}', 'Slots of all runtimes, and those in use.', async (observe) => {
    const { slots, usedSlots } = await admission.capacity();
    observe(slots, { state: 'all' });
    observe(usedSlots, { state: 'used' });
  });
  gauge(
    'pie.admission.pages',
    '{page}',
    'KV pages of each model, and those that admitted invocations are expected to use.',
    async (observe) => {
      for (const { model, pages, usedPages } of (await admission.capacity()).models) {
        observe(pages, { model, state: 'all' });
        observe(usedPages, { model, state: 'expected' });
      }
    },
  );
  gauge(
    'pie.admission.memory',
    'By',
    'Memory that inferlets may take, and that admitted ones are expected to take.',
    async (observe) => {
      const { memory } = await admission.capacity();
      if (memory === null) return;
      observe(memory.totalMb * 2 ** 20, { state: 'all' });
      observe(memory.usedMb * 2 ** 20, { state: 'expected' });
    },
  );
  gauge('pie.runtimes', '{runtime}', 'Known runtimes, by whether they are alive.', async (observe) => {
    const known = await runtimes.list();
    const aliveCount = known.filter((runtime) => runtime.alive).length;
    observe(aliveCount, { state: 'alive' });
    observe(known.length - aliveCount, { state: 'gone' });
  });
  gauge('pie.gpu_hosts', '{host}', 'GPU hosts of runtimes; drained ones count only as drained.', async (observe) => {
    const hosts = gpuHostsOf(await runtimes.list());
    const drainedCount = hosts.filter((host) => host.drained).length;
    const availableCount = hosts.filter((host) => host.connected && !host.drained).length;
    observe(availableCount, { state: 'there' });
    observe(drainedCount, { state: 'drained' });
    observe(hosts.length - drainedCount - availableCount, { state: 'away' });
  });
  gauge('pie.redis.memory', 'By', 'Memory that Redis uses, and its limit if it has one.', async (observe) => {
    const { usedBytes, maxBytes } = await store.memory();
    observe(usedBytes, { state: 'used' });
    if (maxBytes !== null) observe(maxBytes, { state: 'all' });
  });
}

/** Bytes, streams and connections that clients of this gateway hold. */
export function watchRequests(
  meter: Meter,
  { bodies, streams, connections }: { bodies: Bodies; streams: OpenStreams; connections: Connections },
): void {
  meter
    .createObservableGauge('pie.gateway.bodies', {
      unit: 'By',
      description: 'Request bodies and large answers that this gateway holds, and their limit.',
    })
    .addCallback((result) => {
      result.observe(bodies.heldBytes, { state: 'held' });
      result.observe(bodies.limits.heldBodyBytes, { state: 'all' });
    });
  meter
    .createObservableGauge('pie.gateway.streams', {
      unit: '{stream}',
      description: 'Open streams and waiting answers of this gateway, and their limit.',
    })
    .addCallback((result) => {
      result.observe(streams.open, { state: 'open' });
      result.observe(streams.limits.streams, { state: 'all' });
    });
  meter
    .createObservableGauge('pie.gateway.connections', {
      unit: '{connection}',
      description: 'Open connections of clients to this gateway, and their limit.',
    })
    .addCallback((result) => {
      result.observe(connections.open, { state: 'open' });
      result.observe(connections.max, { state: 'all' });
    });
  meter
    .createObservableCounter('pie.gateway.connections.dropped', {
      unit: '{connection}',
      description: 'Connections without a request of a known key that were closed to make room for new ones.',
    })
    .addCallback((result) => result.observe(connections.dropped));
}

/** Counts webhook attempts. Every outcome starts at 0, so that the first failure shows as an increase of its series. */
export function countWebhooks(meter: Meter): (outcome: WebhookOutcome) => void {
  const attempts = meter.createCounter('pie.webhooks', {
    unit: '{attempt}',
    description: 'Attempts to deliver a webhook: delivered, to be repeated, or failed for good.',
  });
  for (const outcome of WEBHOOK_OUTCOMES) attempts.add(0, { outcome });
  return (outcome) => attempts.add(1, { outcome });
}

/** The `MAX_OWNERS` tenants with the most invocations, and one entry `OTHER` with the sums of all other tenants. */
export function withOthers(tenants: readonly Load[]): Load[] {
  if (tenants.length <= MAX_OWNERS) return [...tenants];
  const sorted = tenants.toSorted((a, b) => b.waiting + b.running - a.waiting - a.running);
  const other = { tenant: OTHER, waiting: 0, running: 0 };
  for (const { waiting, running } of sorted.slice(MAX_OWNERS)) {
    other.waiting += waiting;
    other.running += running;
  }
  return [...sorted.slice(0, MAX_OWNERS), other];
}
