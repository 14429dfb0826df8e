import { stringify } from 'smol-toml';
import type { Role } from './machine-settings.ts';
import type { ModelEnvironment } from './model-entry.ts';

/** Content of a pie.toml. */
export type Settings = Readonly<Record<string, unknown>>;

/** Settings of one machine, which another must not take over: a whole table, or a table and one of its keys. */
const MACHINE_ONLY: readonly (readonly [string, string?])[] = [
  ['machine'],
  ['redis'],
  ['log'],
  ['gateway', 'host'],
  ['gateway', 'port'],
  ['gpu_host', 'address'],
  ['runtime', 'address'],
];

/** Name of `[gpu_host] placement` between machines: machines of the previous release know only this name. */
const PLACEMENT_SENT = 'spread';

/** The settings of one machine that hold for the whole platform, with the models that its environment chooses. */
export function sharedSettings(file: Settings, environment: ModelEnvironment): Settings {
  const shared: Record<string, unknown> = { ...withGpuHostKey(file, 'placement', PLACEMENT_SENT) };
  for (const [table, key] of MACHINE_ONLY) {
    const content = shared[table];
    if (key === undefined) delete shared[table];
    else if (isTable(content)) {
      const { [key]: _, ...rest } = content;
      if (Object.keys(rest).length > 0) shared[table] = rest;
      else delete shared[table];
    }
  }
  const { PIE_MODEL: name, PIE_BACKEND: backend, PIE_BITS: bits } = environment;
  const chosenModels = name ? [{ name }] : [];
  const models = Array.isArray(shared.model) ? shared.model : chosenModels;
  if (models.length === 0) return shared;
  const model = models.map((entry) =>
    isTable(entry) && (entry.kind ?? 'causal') === 'causal'
      ? { ...entry, ...(backend ? { backend } : {}), ...(bits ? { bits: Number(bits) } : {}) }
      : entry,
  );
  return { ...shared, model };
}

/** A machine that joins. */
export interface JoiningMachine {
  readonly name: string;
  readonly roles: readonly Role[];
  /** Host at which the other machines reach it. */
  readonly address: string;
  readonly redis: {
    readonly url: string;
    /** Name of the file, beside the settings, with the authorities of the certificate of Redis. */
    readonly ca?: string;
  };
}

/** The text of the pie.toml of a machine that joins. */
export function joinedSettings(shared: Settings, { name, roles, address, redis }: JoiningMachine): string {
  return stringify({
    ...withGpuHostKey(shared, PLACEMENT_SENT, 'placement'),
    machine: { name, roles: [...roles], address },
    redis: { url: redis.url, ...(redis.ca !== undefined && { ca: redis.ca }) },
  });
}

/** The settings with another name for a key of `[gpu_host]`. */
function withGpuHostKey(settings: Settings, from: string, to: string): Settings {
  const { gpu_host: host } = settings;
  if (!isTable(host) || !(from in host)) return settings;
  const { [from]: value, ...rest } = host;
  return { ...settings, gpu_host: { ...rest, [to]: value } };
}

const isTable = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
