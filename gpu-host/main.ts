import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config, GpuHostConfig } from '#infra/config.ts';
import { announceReady, exitWithParent } from '#infra/lifeline.ts';
import { logEnding, openLog } from '#infra/log.ts';
import type { EncoderEntry, ModelEntry } from '#infra/model-entry.ts';
import type { MetricFamily } from '#infra/telemetry/family.ts';
import type { TelemetrySettings } from '#infra/telemetry/settings.ts';
import type { Telemetry } from '#infra/telemetry/telemetry.ts';
import { watchVitals } from '#infra/telemetry/vitals.ts';
import type { LinkSecurity } from '#scheduler/links/security.ts';
import type { Backend } from './backends/backend.ts';
import { type Choice, chooseBackend, lookAtMachine, weightForm } from './backends/choose.ts';
import type { DeviceFailure } from './backends/cuda/index.ts';
import { pacedBackend, pacedEncoder } from './backends/paced.ts';
import { lackingTraits, ONNX_TRAITS } from './backends/traits.ts';
import type { HostedEncoder } from './encoders/engine.ts';
import { measured } from './encoders/latency-profile.ts';
import { uncutInputs } from './handlers/calls/plan.ts';
import { DEFAULT_ADAPTER_BYTES } from './handlers/engine/model.ts';
import { type LoadedAdapter, loadAdapter } from './models/adapter.ts';
import { defaultPages } from './models/config.ts';
import { loadEncoder } from './models/encoder/load.ts';
import { ModelError } from './models/errors.ts';
import { type FingerprintOptions, fingerprint } from './models/fingerprint.ts';
import { type LoadedModel, loadModel } from './models/load.ts';
import { MatrixRows } from './models/matrix-rows.ts';
import { bitsFor, machineMemory } from './models/memory-plan.ts';
import { pullModel } from './models/pull.ts';
import { parseSource } from './models/source.ts';
import { hostFamilies } from './protocol/host-metrics.ts';
import { GpuHost, type HostedModel } from './server/gpu-host.ts';
import { measuredSteps, waitedForCoreMs } from './telemetry/measure-steps.ts';
import { logUnexpected } from './unexpected.ts';

/** Replaced once the configuration is read. */
let log = openLog('gpu-host');

/**
 * The GPU host process: loads its models, listens, and serves until it is told to stop or its supervisor is gone. It imports a backend, and other
 * modules that only some configurations need, once its configuration asks for them: all these imports take longer than loading a small model.
 */
async function main(): Promise<void> {
  const { config, installation } = await hostConfig();
  log = openLog(config.name, installation?.log);
  logUnexpected(log);
  // Do this before the models load, which takes minutes: the supervisor may end meanwhile.
  let stop = async (): Promise<void> => undefined;
  exitWithParent(log, () => stop());
  const security = installation && (await linkSecurity(installation));
  const startedMs = performance.now();
  const models: HostedModel[] = [];
  const lostDevice = new LostDevice();
  // Load one after the other: memory bandwidth bounds loading.
  for (const entry of config.models)
    models.push(await withNameInError(entry.name, openModel(entry, config.kvDirectory, lostDevice)));
  const encoders: HostedEncoder[] = [];
  for (const entry of config.encoders) encoders.push(await withNameInError(entry.name, openEncoder(entry)));
  const telemetry = await startTelemetry(installation?.telemetry ?? NO_TELEMETRY, config.name, () =>
    hostFamilies(host.stats(), config.name),
  );
  const { tracer, vitals } = telemetry;
  const host = new GpuHost(models, { log, name: config.name, encoders, vitals, security, ...(tracer && { tracer }) });
  lostDevice.host = host;
  const address = await host.listen(config.address);
  stop = stopOnce(
    host,
    [...models.map(({ backend }) => backend), ...encoders.map(({ encoder }) => encoder)],
    telemetry,
  );
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop());
  announceReady({
    address,
    detail: {
      models: models.map(({ name, backend }) => ({
        name,
        backend: backend.name,
        precision: backend.precision,
        device: backend.device.name,
      })),
      ...(encoders.length > 0 && { encoders: encoders.map(({ name }) => name) }),
      loadMs: Math.round(performance.now() - startedMs),
    },
  });
}

/** Settings of a process that sends its metrics and spans nowhere. */
const NO_TELEMETRY: TelemetrySettings = { sampleRatio: 1, serviceNamespace: 'pie', metricsPublic: false };

/** This process's part of the configuration. `PIE_GPU_HOST_NAME` names the part; `PIE_GPU_HOST_CONFIG` is a JSON file with the part itself. */
async function hostConfig(): Promise<{ config: GpuHostConfig; installation?: Config }> {
  const file = process.env.PIE_GPU_HOST_CONFIG;
  if (file) return { config: JSON.parse(readFileSync(file, 'utf8')) as GpuHostConfig };
  const { loadConfig } = await import('#infra/config.ts');
  const installation = loadConfig();
  const { gpuHosts } = installation;
  const name = process.env.PIE_GPU_HOST_NAME;
  const config = name ? gpuHosts.find((host) => host.name === name) : gpuHosts[0];
  if (!config)
    throw new Error(
      `the configuration has no GPU host named ${name}; it has ${gpuHosts.map((host) => host.name).join(', ')}`,
    );
  return { config, installation };
}

async function linkSecurity(installation: Config): Promise<LinkSecurity | undefined> {
  const { openLinkSecurity } = await import('#infra/links/security.ts');
  return openLinkSecurity(installation, log);
}

/** Vital signs, for which runtimes ask. `tracer` is undefined when no collector is configured. */
type HostTelemetry = Pick<Telemetry, 'tracer' | 'vitals' | 'close'>;

async function startTelemetry(
  settings: TelemetrySettings,
  process: string,
  families: () => readonly MetricFamily[],
): Promise<HostTelemetry> {
  if (settings.otlpEndpoint === undefined) return { tracer: undefined, vitals: watchVitals(), close: async () => {} };
  const { openTelemetry } = await import('#infra/telemetry/telemetry.ts');
  return openTelemetry({ settings, room: 'gpu-host', process, families, log });
}

async function openModel(
  entry: ModelEntry,
  kvDirectory: string | undefined,
  lostDevice: LostDevice,
): Promise<HostedModel> {
  const { directory } = await pullModel(entry.source);
  const model = await loadModel(directory);
  const { name, prefixCache, swapMemoryMb = 0, swapDiskMb = 0, adapterMemoryMb, imageCacheMb } = entry;
  const adapters = await openAdapters(entry, model);
  const choice = entry.backend === 'auto' ? await choiceFor(model) : undefined;
  const backendName = choice?.backend ?? (entry.backend as BackendName);
  const chosen: ResolvedEntry = {
    ...entry,
    backend: backendName,
    ...((backendName === 'onnx' || backendName === 'ggml') && bitsOf(entry, model)),
  };
  if (choice) log.info({ model: name, backend: choice.backend, reason: choice.reason }, 'chose the backend of a model');
  const weightPrecision = heldBits(chosen);
  const unpacedBackend = await createBackend(chosen, model, (failure) => lostDevice.end(name, failure));
  const backend = entry.pace ? pacedBackend(unpacedBackend, name, entry.pace) : unpacedBackend;
  const { maxBatchTokens: maxTokens, maxBatchSequences: maxSequences } = entry;
  return {
    name,
    backend,
    profile: await measuredSteps(backend, { maxTokens, maxSequences }, () => performance.now(), waitedForCoreMs),
    directory: model.directory,
    ...(choice && { reason: choice.reason }),
    embeddings: new MatrixRows(model.tensors.info('model.embed_tokens.weight')),
    ...(entry.thoughts !== undefined && { thoughts: entry.thoughts }),
    bits: backend.weightBits ?? weightPrecision.bits,
    maxBatchTokens: maxTokens,
    maxBatchCalls: maxSequences,
    ...(prefixCache !== undefined && { prefixCache }),
    swapMemoryBytes: swapMemoryMb * MIB,
    swapDiskBytes: swapDiskMb * MIB,
    adapters,
    ...(adapterMemoryMb !== undefined && { adapterMemoryBytes: adapterMemoryMb * MIB }),
    ...(imageCacheMb !== undefined && { imageCacheBytes: imageCacheMb * MIB }),
    ...(kvDirectory && {
      kv: { directory: join(kvDirectory, name), fingerprint: fingerprint(model, { ...chosen, ...weightPrecision }) },
    }),
  };
}

async function openEncoder({ name, source, kind, threads, pace }: EncoderEntry): Promise<HostedEncoder> {
  const { directory } = await pullModel(source, { kind });
  const model = await loadEncoder(directory, kind);
  const { OnnxEncoder } = await import('./backends/onnx/encoder.ts');
  const loadedEncoder = await OnnxEncoder.open(model, threads > 0 ? { threads } : {});
  const encoder = pace ? pacedEncoder(loadedEncoder, pace) : loadedEncoder;
  const device = { name: pace ? `paced ${name}` : 'CPU' };
  return { name, encoder, device, directory: model.directory, profile: await measured(encoder) };
}

const MIB = 1024 * 1024;

/** Checks all of a model's adapters, so that an unusable one fails at start and not in the first call. */
async function openAdapters(entry: ModelEntry, model: LoadedModel): Promise<ReadonlyMap<string, LoadedAdapter>> {
  const adapters = new Map<string, LoadedAdapter>();
  for (const { name, source } of entry.adapters ?? []) {
    const fail = (text: string, cause?: unknown): never => {
      throw new Error(`the adapter "${name}" of the model "${entry.name}" (${source}): ${text}`, { cause });
    };
    try {
      const parsed = parseSource(source);
      if (parsed.kind !== 'file') return fail('only file: and a path can be an adapter');
      const adapter = await loadAdapter(parsed.path, model.config);
      const limitMb = entry.adapterMemoryMb ?? Number.POSITIVE_INFINITY;
      if (adapter.bytes > limitMb * MIB)
        return fail(`${Math.ceil(adapter.bytes / MIB)} MiB do not fit adapter_memory_mb, which is ${limitMb}`);
      adapters.set(name, adapter);
    } catch (error) {
      if (!(error instanceof ModelError)) throw error;
      fail(reasonOf(error), error);
    }
  }
  return adapters;
}

/** Adds the model's name to the error of a model that cannot be loaded. */
async function withNameInError<T>(name: string, loading: Promise<T>): Promise<T> {
  try {
    return await loading;
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    throw new Error(`the model "${name}": ${reasonOf(error)}`, { cause: error });
  }
}

function reasonOf({ message, hint }: ModelError): string {
  return hint === undefined ? message : `${message} (${hint})`;
}

type WeightPrecision = Pick<FingerprintOptions, 'bits' | 'headBits' | 'precision'>;

/** Bits of the weights, and of the head's weights, on the device. */
function heldBits({ backend, bits, headBits, precision = 'bf16' }: ResolvedEntry): WeightPrecision {
  switch (backend) {
    case 'reference':
      return { bits: 32, headBits };
    case 'onnx':
    case 'ggml':
      return { bits, headBits };
    case 'cuda': {
      const width = { bf16: 16, int8: 8, fp8: 8, int4: 4, float32: 32 }[precision];
      return { bits: width, headBits: Math.max(width, 8), precision };
    }
    default:
      throw unknownBackend(backend);
  }
}

type BackendName = Exclude<ModelEntry['backend'], 'auto'>;

/** An entry whose backend is known. */
type ResolvedEntry = Omit<ModelEntry, 'backend'> & { readonly backend: BackendName };

/** Fewer bits for a model whose weights would take over half of the memory, where the configuration names none. */
function bitsOf({ name, choosesBits }: ModelEntry, model: LoadedModel): Partial<Pick<ModelEntry, 'bits' | 'headBits'>> {
  if (choosesBits !== true) return {};
  const bits = bitsFor(model, machineMemory());
  if (bits === 32) return {};
  log.warn({ model: name, bits }, 'the weights get fewer bits, because more would take over half of the memory');
  return { bits, headBits: Math.max(bits, 8) as 8 };
}

/** What `backend = "auto"` means for a model on this machine. */
async function choiceFor(model: LoadedModel): Promise<Choice> {
  const form = weightForm(model);
  const needsGgml = form === 'packed' || lackingTraits(model.config, ONNX_TRAITS).length > 0;
  return chooseBackend(model.config, form, await lookAtMachine(needsGgml));
}

async function createBackend(
  entry: ResolvedEntry,
  model: LoadedModel,
  onDeviceLost: (failure: DeviceFailure) => void,
): Promise<Backend> {
  // The CUDA backend itself computes how many pages fit on its card.
  const isCounted = entry.pages > 0 || entry.backend === 'cuda';
  const pageCount = isCounted ? entry.pages : defaultPages(model.config, entry.pageSize, machineMemory());
  const pool = { pageSize: entry.pageSize, pageCount };
  const report = (line: string, level: 'info' | 'warn') => log[level]({ model: entry.name }, line);
  switch (entry.backend) {
    case 'reference': {
      const { createReferenceBackend } = await import('./backends/reference/index.ts');
      return createReferenceBackend(model, pool);
    }
    case 'onnx': {
      const { createOnnxBackend } = await import('./backends/onnx/index.ts');
      const { bits, headBits, threads, adapters = [], stepMemoryMb } = entry;
      const onnxOptions = {
        report,
        adapters: adapters.length > 0,
        ...(threads > 0 && { threads }),
        ...(stepMemoryMb !== undefined && { stepBytes: stepMemoryMb * MIB }),
      };
      return createOnnxBackend(model, { ...pool, bits, headBits, ...onnxOptions });
    }
    case 'ggml': {
      const { createGgmlBackend } = await import('./backends/ggml/index.ts');
      const { bits, headBits, threads } = entry;
      const ggmlOptions = { ...pool, bits, headBits, ...(threads > 0 && { threads }) };
      try {
        return await createGgmlBackend(model, { ...ggmlOptions, device: 'auto' });
      } catch (error) {
        if (!(error instanceof ModelError)) throw error;
        log.warn(
          { model: entry.name },
          `the model does not start on the device that ggml chose, so the CPU is tried: ${reasonOf(error)}`,
        );
        return createGgmlBackend(model, ggmlOptions);
      }
    }
    case 'cuda': {
      const { createCudaBackend } = await import('./backends/cuda/index.ts');
      return createCudaBackend(model, { ...pool, ...cudaOptions(entry, model), lost: onDeviceLost, report });
    }
    default:
      throw unknownBackend(entry.backend);
  }
}

/** Only the file of `PIE_GPU_HOST_CONFIG`, which is not checked, can name an unknown backend. */
function unknownBackend(name: never): Error {
  return new Error(`no backend is named "${name}"`);
}

function cudaOptions(entry: ResolvedEntry, { config }: LoadedModel) {
  const {
    device,
    memoryMb,
    stepDeadlineS,
    warmUpS,
    dependentLaunch,
    sharedPrefixes,
    precision,
    kv,
    threads,
    maxBatchTokens,
    maxBatchSequences,
    adapters = [],
    adapterMemoryMb,
  } = entry;
  // A step must have room for all inputs of a call that cannot be cut.
  const maxRows = Math.max(maxBatchTokens, uncutInputs(config.heads));
  const adapterBytes = adapterMemoryMb === undefined ? DEFAULT_ADAPTER_BYTES : adapterMemoryMb * MIB;
  return {
    maxRows,
    maxSequences: maxBatchSequences,
    reserveBytes: adapters.length > 0 ? adapterBytes : 0,
    ...(device !== undefined && { device }),
    ...(memoryMb !== undefined && { memoryBytes: memoryMb * MIB }),
    ...(stepDeadlineS !== undefined && { stepDeadlineMs: stepDeadlineS * 1000 }),
    ...(warmUpS !== undefined && { warmUpMs: warmUpS * 1000 }),
    ...(dependentLaunch !== undefined && { dependentLaunch }),
    ...(sharedPrefixes !== undefined && { sharedPrefixes }),
    ...(precision && { precision }),
    ...(kv && { kv }),
    ...(threads > 0 && { threads }),
  };
}

/** Maximum time to tell the runtimes the cause, milliseconds. */
const LAST_WORDS_MS = 500;

/** Ends a process whose card has failed: logs and sends the cause, then exits; the supervisor starts another process. */
class LostDevice {
  host: GpuHost | undefined;

  end(model: string, { what, device }: DeviceFailure): void {
    log.error({ model, why: what, device }, 'the device failed');
    const notification = this.host?.abandon(
      `the device of the model "${model}" failed (${what}); the GPU host starts again`,
    );
    void Promise.race([notification, sleep(LAST_WORDS_MS)]).finally(() => process.exit(1));
  }
}

/** Maximum time for stopping; a longer batch is cut off, also on a card that hangs. */
const STOP_DEADLINE_MS = 1500;
/** Part of `STOP_DEADLINE_MS` for exporting the last spans. */
const FLUSH_DEADLINE_MS = 500;

function stopOnce(
  host: GpuHost,
  backends: readonly { dispose(): Promise<void> }[],
  telemetry: HostTelemetry,
): () => Promise<void> {
  let stopping: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    setTimeout(() => process.exit(0), STOP_DEADLINE_MS).unref();
    await host.close();
    await telemetry.close(FLUSH_DEADLINE_MS);
    for (const backend of backends) await backend.dispose();
    process.exit(0);
  };
  return () => {
    stopping ??= stop();
    return stopping;
  };
}

main().catch((error: unknown) => {
  logEnding(log, error, 'the GPU host ends');
  process.exit(1);
});
