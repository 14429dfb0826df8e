import { z } from 'zod';

/** An inferlet's rights besides computing and communicating with its client. */
export interface Grants {
  /** Allowed hosts: `api.example.com`, `*.example.com`. `:port` allows another port than the scheme's own, `:*` any port. */
  readonly hosts: readonly string[];
  /** True for GET requests by https to the hosts that the operator allows for images (`pie.toml`: `[http] image_hosts`). */
  readonly imageHosts: boolean;
  /** The tenant's key-value store and vector indexes. */
  readonly store: 'none' | 'read' | 'write';
  /** Broadcasts and message queues among the tenant's inferlets. */
  readonly messaging: boolean;
  /** Functions of the tenant that an inferlet may launch as children; `*` for all. */
  readonly launch: readonly string[] | '*';
}

/** Grants of a function whose manifest requests none. */
export const NO_GRANTS: Grants = { hosts: [], imageHosts: false, store: 'none', messaging: false, launch: [] };

const MAX_HOSTS = 64;
const MAX_LAUNCH = 64;
const HOST =
  /^(?<host>(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::(?<port>[1-9][0-9]{0,4}|\*))?$/;
const MAX_PORT = 65_535;
const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'http:': '80', 'https:': '443' };
const NAME = /^[a-z][a-z0-9-]{0,62}$/;

/** Schema of a manifest's `grants`. */
export const grantsSchema = z.strictObject(
  {
    hosts: z
      .array(
        z
          .string('must be a host')
          .refine(
            isHostPattern,
            'must be a host such as "api.example.com", "*.example.com" or "localhost:8080" (":*" for any port), in lower case',
          ),
        'must be a list of hosts',
      )
      .max(MAX_HOSTS, `must not name more than ${MAX_HOSTS} hosts`)
      .optional(),
    imageHosts: z.boolean('must be true or false').optional(),
    store: z.union([z.boolean(), z.literal('read')], 'must be true, false or "read"').optional(),
    messaging: z.boolean('must be true or false').optional(),
    launch: z
      .union(
        [
          z.literal('*'),
          z
            .array(z.string('must be the name of a function').regex(NAME, 'must be the name of a function'))
            .max(MAX_LAUNCH, `must not name more than ${MAX_LAUNCH} functions`),
        ],
        'must be "*" or a list of functions',
      )
      .optional(),
  },
  'must be an object',
);

/** True when a text is a host pattern as in `Grants.hosts`. */
function isHostPattern(text: string): boolean {
  const port = HOST.exec(text)?.groups?.port ?? '';
  return HOST.test(text) && (port === '*' || Number(port) <= MAX_PORT);
}

/**
 * True when a pattern matches the host and the port of a URL. A pattern without a port matches the scheme's own port only; with `any-port`, it
 * matches every port.
 *
 * @example hostMatches('*.example.com', new URL('https://api.example.com/')) // true
 */
export function hostMatches(pattern: string, { hostname, port, protocol }: URL, portless?: 'any-port'): boolean {
  const { host, port: patternPort } = HOST.exec(pattern)?.groups ?? {};
  if (host === undefined) return false;
  const isHost = host.startsWith('*.') ? hostname.endsWith(host.slice(1)) : hostname === host;
  if (!isHost) return false;
  if (patternPort === '*' || (patternPort === undefined && portless)) return true;
  const schemePort = DEFAULT_PORTS[protocol];
  return (port || schemePort) === (patternPort ?? schemePort);
}

/** The grants that a manifest's `grants` field describes. */
export function resolveGrants(manifestGrants: z.infer<typeof grantsSchema> = {}): Grants {
  const { hosts = [], imageHosts = false, store = false, messaging = false, launch = [] } = manifestGrants;
  return { hosts, imageHosts, store: storeRight(store), messaging, launch };
}

function storeRight(store: boolean | 'read'): Grants['store'] {
  if (store === 'read') return 'read';
  return store ? 'write' : 'none';
}
