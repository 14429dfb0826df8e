import { z } from 'zod';

const HOST =
  /^(?:(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::(?<port>[1-9][0-9]{0,4}|\*))?$/;
const MAX_PORT = 65_535;
const MAX_HOSTS = 256;
/** The scheduler's syntax for tenant names. */
const TENANT = /^[a-z][a-z0-9-]{0,62}$/;

const hostSchema = z
  .string('must be a host')
  .regex(HOST, 'must be a host such as "127.0.0.1", "*.internal" or "[::1]:8080", in lower case and without "http://"')
  .refine((text) => {
    const port = HOST.exec(text)?.groups?.port ?? '*';
    return port === '*' || Number(port) <= MAX_PORT;
  }, `must have a port from 1 to ${MAX_PORT}`);

const tableSchema = z.strictObject(
  {
    /** `host` for any port, `host:port` for one, `*.domain` for all below a domain. */
    host: hostSchema,
    /** The only tenant that may use the host; without it, every tenant may. */
    tenant: z.string().regex(TENANT, 'must be the name of a tenant').optional(),
  },
  'must be a host, or a table such as { host = "tools.internal:8080", tenant = "acme" }',
);

/** A host with private addresses that the platform may connect to for a tenant. */
export type PrivateHostConfig = Readonly<z.infer<typeof tableSchema>>;

/** `private_hosts` of pie.toml: a list of hosts, or of tables with a host and its tenant. */
export const privateHostsSchema = z
  .array(
    z.preprocess((entry) => (typeof entry === 'string' ? { host: entry } : entry), tableSchema),
    'must be a list of hosts',
  )
  .max(MAX_HOSTS, `must not have more than ${MAX_HOSTS} hosts`)
  .default([]);

/** `image_hosts` of pie.toml: hosts that requests may name as the source of an image. */
export const imageHostsSchema = z
  .array(hostSchema, 'must be a list of hosts')
  .max(MAX_HOSTS, `must not have more than ${MAX_HOSTS} hosts`)
  .default([]);
