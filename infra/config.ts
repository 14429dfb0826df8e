import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parse as parseToml } from 'smol-toml';
import { z } from 'zod';
import { QUOTA_NAMES } from '#scheduler/quotas/names.ts';
import { ISOLATION_LAYERS, PLACEMENTS, type PlacementPolicy } from '#scheduler/runtimes/types.ts';
import { ConfigError } from './config-error.ts';
import { imageHostsSchema, type PrivateHostConfig, privateHostsSchema } from './http-hosts.ts';
import { defaultHome, ROOT } from './install.ts';
import { type LogSettings, logEnvironment, logSchema, logSettings } from './log-settings.ts';
import {
  buildsAtOnce,
  type MachineSettings,
  machineEnvironment,
  machineMemoryMb,
  machineSchema,
  machineSettings,
  ROLES,
  redisShareMb,
  runtimeShareMb,
  type Settings,
  sandboxesOf,
  sharedSettings,
} from './machine-settings.ts';
import {
  cardSpan,
  type EncoderEntry,
  encoderEntries,
  type ModelEntry,
  modelEntries,
  modelEnvironment,
  modelSchema,
  onCard,
} from './model-entry.ts';
import { type RedisSettings, redisSchema, redisSettings, redisUrl } from './redis-settings.ts';
import {
  type IndexSettings,
  indexSchema,
  indexSettings,
  type RetentionConfig,
  retentionSchema,
  type StorageSettings,
  storageSchema,
  storageSettings,
} from './storage-settings.ts';
import type { TelemetrySettings } from './telemetry/settings.ts';

export interface GpuHostConfig {
  /** Unique among all machines, see `processName`. */
  readonly name: string;
  /** Name of the process on this machine. */
  readonly localName: string;
  /** A unix socket's path, or `host:port`. */
  readonly address: string;
  readonly models: readonly ModelEntry[];
  readonly encoders: readonly EncoderEntry[];
  /** Holds persistent exports, KV files and swapped pages, one folder per model. Without it, all of these end with the process. */
  readonly kvDirectory?: string;
}

const ISOLATIONS = ['auto', ...ISOLATION_LAYERS] as const;

export interface RuntimeConfig {
  /** `host:port` at which gateways of other machines get events that are not in the log yet; without it, only this machine's gateway gets them. */
  readonly address?: string;
  /** Invocations that one runtime runs at once. */
  readonly concurrency: number;
  /** Memory for the instances of all running invocations together; admission counts the memory that it expects each to use. */
  readonly memoryMb: number;
  readonly sandboxes: {
    /** Maximum sandboxes of one runtime at once, spares included. */
    readonly most: number;
    /** Sandboxes that one tenant may have at once. */
    readonly perTenant: number;
    /** Sandboxes that are started in advance and have no tenant yet. */
    readonly spares: number;
    /** The runtime ends a sandbox that has had no invocations for this long. */
    readonly idleMs: number;
    /** Memory that all guests of one sandbox may touch together. */
    readonly memoryMb: number;
    /** Part of `memoryMb` that ready instances may use. */
    readonly poolMb: number;
  };
  /** Confinement of processes that handle untrusted bytes: `auto` uses namespaces where they work; any other value demands the named layer. */
  readonly isolation: (typeof ISOLATIONS)[number];
  /** Components built at once, each in a process of its own that may use 1 GiB. */
  readonly builds: number;
  /** Limits of a function whose manifest sets none. */
  readonly limits: { cpuMs: number; wallMs: number; memoryMb: number; pages: number; tokens: number };
}

export interface Config {
  /** Root of this copy of Pie: the clone, or the installed package. */
  readonly root: string;
  /** Directory of all persistent data: `.pie` in the clone by default, or in the user's directory when Pie is installed as a package. */
  readonly home: string;
  readonly host: string;
  readonly port: number;
  /** Limits over all requests to the gateway. */
  readonly gateway: {
    /** Bytes of request bodies held at once; a tenant may hold a quarter of them, and up to half while the rest is free. */
    readonly heldBodyBytes: number;
    /** Time in which a body may arrive at any rate; afterwards the body must have averaged 16 KiB a second. */
    readonly bodyGraceMs: number;
    /** Rate of one tenant's bodies while other tenants have requests. */
    readonly bodyBytesPerSecond: number;
    /** Event streams, and answers that wait for an outcome, of all keys together. The share of a tenant is the same as for `heldBodyBytes`. */
    readonly streams: number;
    readonly streamsPerKey: number;
    /** Open connections of all clients; fewer where the limit on open files allows fewer. */
    readonly connections: number;
  };
  readonly redis: RedisSettings;
  readonly machine: MachineSettings;
  /** Models, which every GPU host serves. */
  readonly models: readonly ModelEntry[];
  /** Encoders, which every GPU host serves. */
  readonly encoders: readonly EncoderEntry[];
  /** GPU hosts of this machine. */
  readonly gpuHosts: readonly GpuHostConfig[];
  readonly placement: PlacementPolicy;
  readonly runtime: RuntimeConfig;
  readonly index: IndexSettings;
  readonly storage: StorageSettings;
  readonly admission: {
    /** Ratio of admitted pages to existing pages; 1 admits only what is sure to fit. */
    readonly overcommit: number;
    /** Part of slots and pages reserved for tenants that hold few. */
    readonly reserve: number;
    /** Invocations of one tenant that may wait for admission; the scheduler refuses more. */
    readonly maxWaiting: number;
  };
  /**
   * Default quotas of a tenant, by quota name (`tokens-per-day`). A missing quota is unlimited, except `redis-bytes` (a quarter of the memory
   * of Redis; below 1 GiB half of it, at most 256 MiB) and `disk-bytes` (an eighth of the disk of the home, at least 1 GiB).
   */
  readonly quotas: Readonly<Partial<Record<string, number>>>;
  readonly http: {
    /** Hosts with private addresses that functions may be granted. */
    readonly privateHosts: readonly PrivateHostConfig[];
    /** Hosts from which the routes of OpenAI's and Anthropic's APIs load images. */
    readonly imageHosts: readonly string[];
    /** Origins whose pages browsers let call the API; `*` for all. */
    readonly corsOrigins: readonly string[];
  };
  /** Hosts with private addresses that webhooks may be sent to. */
  readonly webhooks: { readonly privateHosts: readonly PrivateHostConfig[] };
  readonly log: LogSettings;
  readonly telemetry: TelemetrySettings;
  readonly retention: RetentionConfig;
  /** Time that running invocations get to finish during a drain. */
  readonly drainMs: number;
  /** Directory of the sockets and the pid file. Its path is short, since a socket's path is limited to 107 bytes. */
  readonly runDirectory: string;
  readonly logsDirectory: string;
  readonly artifactsDirectory: string;
}

/** Base URL of an OTLP/HTTP receiver. */
const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http or https URL, such as http://127.0.0.1:4318' });

/** An origin as browsers send it in the header `Origin`. Schemes other than http and https are those of apps and extensions. */
const origin = z
  .string()
  .refine(
    (text) => text === '*' || (/^https?:/.test(text) ? isOrigin(text) : /^[a-z][a-z0-9+.-]*:\/\/[\w.:-]+$/.test(text)),
    {
      error:
        'must be "*" or an origin such as "https://app.example.com": in lower case, without a path and a default port',
    },
  );

function isOrigin(text: string): boolean {
  return !text.includes('*') && URL.canParse(text) && new URL(text).origin === text;
}

/** A quota has at most 15 digits, as the headers that report limits hold no more. */
const quota = z.int().min(0).max(999_999_999_999_999).optional();

/** Address at which a process listens and other machines connect. An address without a port would be taken for the path of a unix socket. */
const linkAddress = z
  .string()
  .min(1)
  .refine((address) => address.includes('/') || /^[^:]*:\d+$|\]:\d+$/.test(address), {
    error: 'must have a port, such as 10.0.0.5:7400; address below [machine] has none, and stands for all processes',
  })
  .refine((address) => !/^(tcp:\/\/)?(0\.0\.0\.0|\[?::\]?|\*)?:\d+$/.test(address), {
    error: 'must name the address at which other machines reach this one, such as 10.0.0.5:7400',
  })
  .refine((address) => Number(/:(\d+)$/.exec(address)?.[1] ?? 0) < 65_536, { error: 'must have a port below 65536' });

/** The quotas that `pie.toml` may set: all but `waiting-invocations`, for which `admission.max_waiting` stands. */
const quotasSchema = z.strictObject(
  Object.fromEntries(
    QUOTA_NAMES.filter((name) => name !== 'waiting-invocations').map((name) => [name.replaceAll('-', '_'), quota]),
  ),
);

/** The content of `pie.toml`. */
export const fileSchema = z.strictObject({
  model: z.array(modelSchema).min(1).optional(),
  gateway: z
    .strictObject({
      host: z.string().optional(),
      port: z.int().min(0).max(65_535).optional(),
      // At least 256, since one component may have 64 MiB and a tenant may hold a quarter of the total.
      body_memory_mb: z.int().min(256).max(65_536).default(256),
      body_grace_ms: z.int().min(1000).max(300_000).default(20_000),
      body_mb_per_second: z.number().min(0.25).max(65_536).default(8),
      streams: z.int().min(16).max(1_000_000).default(16_384),
      streams_per_key: z.int().min(1).max(1_000_000).default(4096),
      connections: z.int().min(64).max(1_000_000).default(32_768),
    })
    .prefault({}),
  gpu_host: z
    .strictObject({
      address: linkAddress.optional(),
      count: z.int().min(1).max(64).default(1),
      placement: z.enum(PLACEMENTS).optional(),
      /** Alias of `placement`. */
    })
    .refine(({ address, count }) => address === undefined || count === 1, {
      path: ['count'],
      message: 'must be 1 where address is set: one address is one GPU host',
    })
    .prefault({}),
  runtime: z
    .strictObject({
      address: linkAddress.optional(),
      concurrency: z.int().min(1).max(100_000).default(1024),
      total_memory_mb: z.int().min(16).max(16_777_216).optional(),
      max_sandboxes: z.int().min(1).max(4096).optional(),
      sandboxes_per_tenant: z.int().min(1).max(256).default(1),
      spare_sandboxes: z.int().min(0).max(64).default(1),
      sandbox_idle_s: z.int().min(1).max(86_400).default(60),
      sandbox_memory_mb: z.int().min(64).max(1_048_576).optional(),
      pool_memory_mb: z.int().min(16).default(128),
      isolation: z.enum(ISOLATIONS).default('auto'),
      builds: z.int().min(1).max(64).optional(),
      cpu_ms: z.int().min(1).default(30_000),
      wall_ms: z.int().min(1).default(300_000),
      memory_mb: z.int().min(1).max(4096).default(64),
      pages: z.int().min(1).default(512),
      tokens: z.int().min(1).default(1_000_000),
    })
    .prefault({}),
  index: indexSchema,
  storage: storageSchema,
  admission: z
    .strictObject({
      overcommit: z.number().min(1).max(64).default(1),
      reserve: z.number().min(0).max(0.5).default(0.0625),
      max_waiting: z.int().min(0).max(1_000_000).default(10_000),
    })
    .prefault({}),
  quotas: quotasSchema.prefault({}),
  redis: redisSchema,
  machine: machineSchema,
  http: z
    .strictObject({
      private_hosts: privateHostsSchema,
      image_hosts: imageHostsSchema,
      cors_origins: z.array(origin, 'must be a list of origins').max(256).default([]),
    })
    .prefault({}),
  webhooks: z.strictObject({ private_hosts: privateHostsSchema }).prefault({}),
  log: logSchema,
  telemetry: z
    .strictObject({
      otlp_endpoint: httpUrl.optional(),
      sample_ratio: z.number().min(0).max(1).default(1),
      service_namespace: z.string().min(1).max(100).default('pie'),
      metrics_public: z.boolean().default(false),
    })
    .prefault({}),
  retention: retentionSchema.prefault({}),
  // At most a day: Node ends a timer of more than 24 days at once.
  drain_ms: z.int().min(0).max(86_400_000).default(10_000),
});

export const environmentSchema = z.object({
  PIE_HOME: z.string().min(1).optional(),
  PIE_HOST: z.string().min(1).optional(),
  PIE_PORT: z.coerce.number().int().min(0).max(65_535).optional(),
  PIE_CONFIG: z.string().min(1).optional(),
  ...modelEnvironment,
  PIE_GPU_HOST: linkAddress.optional(),
  PIE_RUNTIME: linkAddress.optional(),
  REDIS_URL: redisUrl.optional(),
  ...machineEnvironment,
  ...logEnvironment,
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl.optional(),
  OTEL_TRACES_SAMPLER_ARG: z.coerce.number().min(0).max(1).optional(),
  OTEL_SERVICE_NAME: z.string().min(1).max(100).optional(),
  OTEL_SDK_DISABLED: z.string().optional(),
});

/** Default port of the machine's first GPU host; its other GPU hosts take the next ports. */
const GPU_HOST_PORT = 7400;
/** Default port of the machine's runtime. */
const RUNTIME_PORT = 7500;

/** `host:port` at the machine's address; undefined when it has none. */
function linkAt({ address }: MachineSettings, port: number): string | undefined {
  if (address === undefined) return undefined;
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Longest directory that leaves room for a socket's name. */
const MAX_RUN_DIRECTORY_BYTES = 80;

/** Reads `pie.toml` (in the home, else in the clone) and the environment, which wins. Throws {@link ConfigError}. */
export function loadConfig(environment: NodeJS.ProcessEnv = process.env): Config {
  const root = ROOT;
  const env = check(environmentSchema, withoutEmpty(environment), 'the environment');
  const home = path.resolve(env.PIE_HOME ?? defaultHome());
  const source = sourceOf(env, home);
  const file = check(fileSchema, source === undefined ? {} : readToml(source), source ?? 'the defaults');

  const runDirectory = shortDirectory(path.join(home, 'run'), home);
  const models = modelEntries(file.model, env);
  const encoders = encoderEntries(file.model, env, models);
  const cards = cardSpan(models);
  const redis = redisSettings(
    file.redis,
    env.REDIS_URL,
    { socket: path.join(runDirectory, 'redis.sock'), maxMemoryMb: redisShareMb(machineMemoryMb()) },
    source,
  );
  const machine = machineSettings(file.machine, env);
  if (redis.kind === 'private' && machine.roles.length < ROLES.length)
    throw new ConfigError(
      `The roles ${machine.roles.join(', ')} need a Redis that the machines share. Set REDIS_URL, or url below [redis] in pie.toml.`,
    );
  const runtimeAddress = env.PIE_RUNTIME ?? file.runtime.address ?? linkAt(machine, RUNTIME_PORT);
  return {
    root,
    home,
    host: env.PIE_HOST ?? file.gateway.host ?? '127.0.0.1',
    port: env.PIE_PORT ?? file.gateway.port ?? 8787,
    gateway: {
      heldBodyBytes: file.gateway.body_memory_mb * 2 ** 20,
      bodyGraceMs: file.gateway.body_grace_ms,
      bodyBytesPerSecond: file.gateway.body_mb_per_second * 2 ** 20,
      streams: file.gateway.streams,
      streamsPerKey: file.gateway.streams_per_key,
      connections: file.gateway.connections,
    },
    redis,
    machine,
    models,
    encoders,
    gpuHosts: Array.from({ length: machine.roles.includes('gpu-host') ? file.gpu_host.count : 0 }, (_, i) => {
      const localName = `gpu-host-${i + 1}`;
      const configuredAddress = i === 0 ? (env.PIE_GPU_HOST ?? file.gpu_host.address) : undefined;
      const address = configuredAddress ?? linkAt(machine, GPU_HOST_PORT + i);
      return {
        name: processName({ redis, machine }, localName),
        localName,
        address: address ?? path.join(runDirectory, `${localName}.sock`),
        // Each host uses as many cards as the entries span, after the cards of the host before it.
        models: i === 0 ? models : models.map((model) => onCard(model, i * cards)),
        encoders,
        kvDirectory: path.join(home, 'kv', localName),
      };
    }),
    placement: file.gpu_host.placement ?? 'invocation',
    runtime: {
      ...(runtimeAddress !== undefined && { address: runtimeAddress }),
      concurrency: file.runtime.concurrency,
      memoryMb: file.runtime.total_memory_mb ?? runtimeShareMb(machineMemoryMb()),
      sandboxes: {
        most: file.runtime.max_sandboxes ?? sandboxesOf(machineMemoryMb()),
        perTenant: file.runtime.sandboxes_per_tenant,
        spares: file.runtime.spare_sandboxes,
        idleMs: file.runtime.sandbox_idle_s * 1000,
        memoryMb: file.runtime.sandbox_memory_mb ?? Math.max(1024, Math.floor(machineMemoryMb() / 2)),
        poolMb: file.runtime.pool_memory_mb,
      },
      isolation: file.runtime.isolation,
      builds: file.runtime.builds ?? buildsAtOnce(os.availableParallelism()),
      limits: {
        cpuMs: file.runtime.cpu_ms,
        wallMs: file.runtime.wall_ms,
        memoryMb: file.runtime.memory_mb,
        pages: file.runtime.pages,
        tokens: file.runtime.tokens,
      },
    },
    index: indexSettings(file.index, home, runDirectory),
    storage: storageSettings(file.storage, home),
    admission: {
      overcommit: file.admission.overcommit,
      reserve: file.admission.reserve,
      maxWaiting: file.admission.max_waiting,
    },
    quotas: Object.fromEntries(Object.entries(file.quotas).map(([name, limit]) => [name.replaceAll('_', '-'), limit])),
    http: {
      privateHosts: file.http.private_hosts,
      imageHosts: file.http.image_hosts,
      corsOrigins: file.http.cors_origins,
    },
    webhooks: { privateHosts: file.webhooks.private_hosts },
    log: logSettings(file.log, env),
    telemetry: telemetrySettings(file, env),
    retention: file.retention,
    drainMs: file.drain_ms,
    runDirectory,
    logsDirectory: path.join(home, 'logs'),
    artifactsDirectory: path.join(home, 'artifacts'),
  };
}

/** The settings of this machine that hold for the whole platform. Throws {@link ConfigError}. */
export function settingsForOthers(environment: NodeJS.ProcessEnv = process.env): Settings {
  const env = check(environmentSchema, withoutEmpty(environment), 'the environment');
  const source = sourceOf(env, path.resolve(env.PIE_HOME ?? defaultHome()));
  return sharedSettings(source === undefined ? {} : readToml(source), env);
}

/** The file of the settings: the one that the environment names, else the one in the home or the clone. */
function sourceOf({ PIE_CONFIG }: Environment, home: string): string | undefined {
  return PIE_CONFIG ?? [path.join(home, 'pie.toml'), path.join(ROOT, 'pie.toml')].find((file) => existsSync(file));
}

/** Name of a process of this machine among the processes of all machines: `runtime-1@east`. With a private Redis there is one machine. */
export function processName({ redis, machine }: Pick<Config, 'redis' | 'machine'>, localName: string): string {
  return redis.kind === 'private' ? localName : `${localName}@${machine.name}`;
}

/** Base URL of this machine's gateway. */
export function gatewayUrl({ host, port }: Pick<Config, 'host' | 'port'>): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

type File = z.output<typeof fileSchema>;
type Environment = z.output<typeof environmentSchema>;

function telemetrySettings({ telemetry }: File, env: Environment): TelemetrySettings {
  const isDisabled = env.OTEL_SDK_DISABLED?.toLowerCase() === 'true';
  const endpoint = isDisabled ? undefined : (env.OTEL_EXPORTER_OTLP_ENDPOINT ?? telemetry.otlp_endpoint);
  return {
    ...(endpoint !== undefined && { otlpEndpoint: endpoint.replace(/\/+$/, '') }),
    sampleRatio: env.OTEL_TRACES_SAMPLER_ARG ?? telemetry.sample_ratio,
    serviceNamespace: telemetry.service_namespace,
    ...(env.OTEL_SERVICE_NAME !== undefined && { serviceName: env.OTEL_SERVICE_NAME }),
    metricsPublic: telemetry.metrics_public,
  };
}

function readToml(file: string): Settings {
  try {
    return parseToml(readFileSync(file, 'utf8'));
  } catch (cause) {
    throw new ConfigError(`Cannot read ${file}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

function check<T>(schema: z.ZodType<T>, value: unknown, where: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map((issue) => `  ${issue.path.join('.') || '(top level)'}: ${issue.message}`);
  throw new ConfigError(`Wrong configuration in ${where}:\n${issues.join('\n')}`);
}

function withoutEmpty(environment: NodeJS.ProcessEnv): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
}

function shortDirectory(wantedDirectory: string, home: string): string {
  if (Buffer.byteLength(wantedDirectory) <= MAX_RUN_DIRECTORY_BYTES) return wantedDirectory;
  return path.join(os.tmpdir(), `pie-${createHash('sha256').update(home).digest('hex').slice(0, 12)}`);
}
