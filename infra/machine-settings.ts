import { isIP } from 'node:net';
import os from 'node:os';
import { z } from 'zod';
import { MACHINE_NAME, MAX_MACHINE_NAME, ROLES, type Role } from '#scheduler/machines/types.ts';

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
