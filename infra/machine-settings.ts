import { isIP } from 'node:net';
import os from 'node:os';
import { stringify } from 'smol-toml';
import { z } from 'zod';
import { MACHINE_NAME, MAX_MACHINE_NAME, ROLES, type Role } from '#scheduler/machines/types.ts';
import type { ModelEnvironment } from './model-entry.ts';

export { ROLES, type Role };

export interface MachineSettings {
  /** Unique among the machines on one Redis. */
  readonly name: string;
  readonly roles: readonly Role[];
  /** Host at which the other machines reach this one; absent when its processes serve this machine alone. */
  readonly address?: string;
}

const machineName = z
  .string()
  .regex(
    MACHINE_NAME,
    `must consist of at most ${MAX_MACHINE_NAME} characters a to z, 0 to 9, dots and hyphens, with a letter or digit at both ends, such as east-1`,
  );

const roles = z.array(z.enum(ROLES)).min(1);

const HOST_NAME = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;

/** Not a wildcard: a process can listen on a wildcard address, but no other machine can connect to it. */
const address = z
  .string()
  .max(253)
  .refine((text) => isIP(text) > 0 || HOST_NAME.test(text.toLowerCase()), {
    error: 'must be an address or a name without a port, such as 10.0.0.5',
  })
  .refine((text) => text !== '0.0.0.0' && text !== '::', {
    error: 'must be the address at which other machines reach this one, such as 10.0.0.5',
  });

export const machineSchema = z
  .strictObject({ name: machineName.optional(), roles: roles.optional(), address: address.optional() })
  .prefault({});

/** The environment's part: the name, the address, and the roles separated by commas. */
export const machineEnvironment = {
  PIE_MACHINE: machineName.optional(),
  PIE_ADDRESS: address.optional(),
  PIE_ROLES: z
    .string()
    .transform((text) => text.split(',').map((role) => role.trim()))
    .pipe(roles)
    .optional(),
};

/** The machine's name and roles; by default the host's name and all roles. */
export function machineSettings(
  file: z.output<typeof machineSchema>,
  env: z.output<z.ZodObject<typeof machineEnvironment>>,
): MachineSettings {
  const wantedRoles = env.PIE_ROLES ?? file.roles ?? ROLES;
  const configuredAddress = env.PIE_ADDRESS ?? file.address;
  return {
    name: env.PIE_MACHINE ?? file.name ?? hostName(),
    roles: ROLES.filter((role) => wantedRoles.includes(role)),
    ...(configuredAddress !== undefined && { address: configuredAddress }),
  };
}

function hostName(): string {
  const name = os
    .hostname()
    .toLowerCase()
    .replace(/[^a-z0-9.-]/g, '-')
    .slice(0, MAX_MACHINE_NAME)
    .replace(/^[.-]+|[.-]+$/g, '');
  return name === '' ? 'machine' : name;
}

/**
 * Default limits by the memory and cores of a machine. The limits of memory are upper bounds, not reservations: a quarter of the memory for Redis, a
 * quarter for idle sandboxes and half for inferlets. Together with the memory of the models they may exceed the machine's memory.
 */

/** Resident memory of an idle sandbox, measured: 68 to 98 MB. */
const IDLE_SANDBOX_MB = 100;
const MIN_SANDBOXES = 4;
const MAX_SANDBOXES = 64;

/** Maximum sandboxes: as many as fit into a quarter of the machine's memory while idle, but at least 4 and at most 64. */
export const sandboxesOf = (memoryMb: number): number =>
  Math.max(MIN_SANDBOXES, Math.min(MAX_SANDBOXES, Math.floor(memoryMb / 4 / IDLE_SANDBOX_MB)));

/** Memory limit of a private Redis: a quarter of the machine's. The fork that compacts its log may take as much again. */
export const redisShareMb = (memoryMb: number): number => Math.max(256, Math.floor(memoryMb / 4));

/** Maximum builds at once: half of the cores, at most eight, so that running inferlets keep the other half. */
export const buildsAtOnce = (cores: number): number => Math.min(8, Math.max(1, Math.floor(cores / 2)));

/** Memory limit of all running inferlets, beside the memory of idle sandboxes: half of the machine's. Redis and the models need memory, too. */
export const runtimeShareMb = (memoryMb: number): number => Math.max(256, Math.floor(memoryMb / 2));

/** Memory of the machine in MiB, or the container's limit when that is smaller. */
export function machineMemoryMb(): number {
  // 0 when the limit is unknown.
  const constrained = process.constrainedMemory();
  return Math.floor(Math.min(os.totalmem(), constrained > 0 ? constrained : Number.POSITIVE_INFINITY) / 2 ** 20);
}

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

/** The settings of one machine that hold for the whole platform, with the models that its environment chooses. */
export function sharedSettings(file: Settings, environment: ModelEnvironment): Settings {
  const shared: Record<string, unknown> = { ...file };
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
interface JoiningMachine {
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
    ...shared,
    machine: { name, roles: [...roles], address },
    redis: { url: redis.url, ...(redis.ca !== undefined && { ca: redis.ca }) },
  });
}

const isTable = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
