import type { HistogramPoint, Labels, MetricFamily, NumberPoint } from '#infra/telemetry/family.ts';
import { BATCH_WAIT_BOUNDS_MS, type EncoderStats, type GpuHostStats, type ModelStats } from './host.ts';

/** Bounds of the batch size histogram. */
const SIZE_BOUNDS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/** A host's counters as metrics, for its own exporter and for the runtime. `host` is its name in the configuration. */
export function hostFamilies({ connections, models, encoders }: GpuHostStats, host: string): MetricFamily[] {
  const counter = numberFamily('counter', models);
  const gauge = numberFamily('gauge', models);
  const modelsAndEncoders = [...models, ...encoders];
  const encoderCounter = numberFamily('counter', encoders);
  return [
    {
      name: 'pie.gpu.connections',
      unit: '{connection}',
      description:
        'Connections of runtimes: each runtime has one, and another for each tenant whose inferlets it runs.',
      kind: 'gauge',
      points: [{ labels: {}, value: connections }],
    },
    {
      name: 'pie.gpu.host.model.info',
      unit: '{model}',
      description: 'Backend and device of a model; always 1.',
      kind: 'gauge',
      points: [...models.map(modelLabels), ...encoders.map(encoderLabels)].map((labels) => ({
        labels: { host, ...labels },
        value: 1,
      })),
    },
    {
      name: 'pie.device.memory',
      unit: 'By',
      description: 'Device memory that the model takes, and the total.',
      kind: 'gauge',
      points: models.flatMap(memoryPoints),
    },
    histogram('pie.batch.size', '{sequence}', 'Sequences of a batch.', models, batchSizePoint),
    histogram('pie.batch.wait', 's', 'Time that a call waited for its batch.', models, batchWaitPoint),
    numberFamily('counter', modelsAndEncoders)(
      'pie.device.busy',
      's',
      'Time that the device computed.',
      ({ deviceBusyMs }) => deviceBusyMs / 1000,
    ),
    counter(
      'pie.device.grace',
      's',
      'Time that a free device waited for queues which had just got results.',
      (stats) => stats.graceMs / 1000,
    ),
    counter('pie.device.tokens', '{token}', 'Inputs computed.', {
      phase: {
        prefill: ({ tokens, decodeTokens }) => tokens - decodeTokens,
        decode: ({ decodeTokens }) => decodeTokens,
      },
    }),
    encoderCounter('pie.device.text_tokens', '{token}', 'Tokens of the encoded texts.', ({ tokens }) => tokens),
    encoderCounter('pie.device.texts', '{text}', 'Texts encoded.', ({ texts }) => texts),
    encoderCounter('pie.device.text_batches', '{batch}', 'Batches of texts encoded.', ({ batches }) => batches),
    counter(
      'pie.device.steps_ahead',
      '{step}',
      'Steps handed to the device while the one before was computed, or before their calls had come.',
      ({ stepsAhead }) => stepsAhead,
    ),
    counter(
      'pie.device.vain_guesses',
      '{sequence}',
      'Sequences of guessed steps that were computed in vain.',
      ({ vainGuesses }) => vainGuesses ?? 0,
    ),
    counter(
      'pie.device.graphs_refused',
      '{graph}',
      'Graphs of steps that the driver refused, which makes those steps slower.',
      ({ graphsRefused }) => graphsRefused,
    ),
    counter('pie.device.images', '{image}', 'Images encoded.', ({ images }) => images),
    counter(
      'pie.device.image_hits',
      '{image}',
      'Images not encoded, because their tenant had them encoded before.',
      ({ imageHits }) => imageHits,
    ),
    numberFamily('counter', modelsAndEncoders)(
      'pie.device.failed_calls',
      '{call}',
      'Calls that failed.',
      ({ failedCalls }) => failedCalls,
    ),
    gauge('pie.batch.padding', '1', 'Share of the computed work that was padding.', ({ paddingShare }) => paddingShare),
    gauge('pie.kv.pages', '{page}', 'KV pages by state.', {
      state: {
        free: ({ pages }) => pages.free,
        cached: ({ pages }) => pages.cached,
        owned: ({ pages }) => pages.owned,
        swapped: ({ swappedOutPages }) => swappedOutPages,
      },
    }),
    counter('pie.prefix.tokens', '{token}', 'Tokens asked of the prefix cache, and whether they were there.', {
      result: { hit: ({ prefix }) => prefix.hitTokens, miss: ({ prefix }) => prefix.missTokens },
    }),
    counter(
      'pie.prefix.evictions',
      '{page}',
      'Pages that left the prefix cache for others.',
      ({ prefix }) => prefix.evictions,
    ),
    counter('pie.kv.swaps', '{page}', 'Pages moved to the swap store, and back.', {
      direction: { out: ({ swapsOut }) => swapsOut, in: ({ swapsIn }) => swapsIn },
    }),
    gauge('pie.kv.pinned', '{page}', 'Pages of exports with a lease.', ({ pinnedPages }) => pinnedPages),
    counter(
      'pie.kv.leases_ended',
      '{lease}',
      'Leases on exports that ended before their time, because memory was needed or the export was removed.',
      ({ leasesEnded }) => leasesEnded,
    ),
    counter(
      'pie.kv.preemptions',
      '{invocation}',
      'Invocations preempted to take their memory.',
      ({ preemptions }) => preemptions,
    ),
    gauge(
      'pie.kv.preempted',
      '{invocation}',
      'Preempted invocations that wait for memory.',
      ({ preempted }) => preempted,
    ),
    counter(
      'pie.kv.terminations',
      '{inferlet}',
      'Inferlets ended to take their memory.',
      ({ terminations }) => terminations,
    ),
    gauge(
      'pie.gpu.inferlets',
      '{inferlet}',
      'Inferlets that hold something of the model.',
      ({ inferlets }) => inferlets,
    ),
    numberFamily('gauge', modelsAndEncoders)(
      'pie.gpu.waiting_calls',
      '{call}',
      'Calls that wait for the device.',
      ({ waitingCalls }) => waitingCalls,
    ),
  ];
}

/** Labels that stay the same for the life of the host process. */
function modelLabels({ name, backend, precision, kv, device }: ModelStats): Labels {
  return {
    model: name,
    backend,
    precision,
    ...(kv !== undefined && { kv }),
    ...deviceLabels(device),
  };
}

function encoderLabels({ name, kind, device }: EncoderStats): Labels {
  return { model: name, kind, ...deviceLabels(device) };
}

function deviceLabels({ name, index }: ModelStats['device']): Labels {
  return { device: name, device_index: index === undefined ? '' : String(index) };
}

function memoryPoints({ name, device }: ModelStats): NumberPoint[] {
  if (!device.memory) return [];
  const labels = { model: name, ...deviceLabels(device) };
  const { takenBytes, totalBytes } = device.memory;
  return [
    { labels: { ...labels, state: 'taken' }, value: takenBytes },
    { labels: { ...labels, state: 'all' }, value: totalBytes },
  ];
}

type Read<S> = (stats: S) => number;
/** One number per model, or one for each value of a label. */
type Reads<S> = Read<S> | Readonly<Record<string, Readonly<Record<string, Read<S>>>>>;

function numberFamily<S extends { readonly name: string }>(kind: 'counter' | 'gauge', models: readonly S[]) {
  return (name: string, unit: string, description: string, reads: Reads<S>) => {
    const points = models.flatMap((stats): NumberPoint[] => {
      const model = { model: stats.name };
      if (typeof reads === 'function') return [{ labels: model, value: reads(stats) }];
      return Object.entries(reads).flatMap(([label, values]) =>
        Object.entries(values).map(([value, read]) => ({ labels: { ...model, [label]: value }, value: read(stats) })),
      );
    });
    return { name, unit, description, kind, points };
  };
}

function histogram(
  name: string,
  unit: string,
  description: string,
  models: readonly ModelStats[],
  read: (stats: ModelStats) => Omit<HistogramPoint, 'labels'>,
): MetricFamily {
  const points = models.map((stats) => ({ labels: { model: stats.name }, ...read(stats) }));
  return { name, unit, description, kind: 'histogram', points };
}

function batchSizePoint({ batches, meanBatchSize, batchSizes }: ModelStats): Omit<HistogramPoint, 'labels'> {
  const counts = new Array<number>(SIZE_BOUNDS.length + 1).fill(0);
  for (const [size, count] of batchSizes.entries()) {
    const at = SIZE_BOUNDS.findIndex((bound) => size <= bound);
    const bucket = at < 0 ? SIZE_BOUNDS.length : at;
    counts[bucket] = (counts[bucket] ?? 0) + count;
  }
  return { count: batches, sum: meanBatchSize * batches, bounds: SIZE_BOUNDS, counts };
}

function batchWaitPoint({ waitCounts, waitMs }: ModelStats): Omit<HistogramPoint, 'labels'> {
  return {
    count: waitCounts.reduce((sum, count) => sum + count, 0),
    sum: waitMs / 1000,
    bounds: BATCH_WAIT_BOUNDS_MS.map((bound) => bound / 1000),
    counts: waitCounts,
  };
}
