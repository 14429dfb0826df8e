import { builtinModules } from 'node:module';

const MODULES: ReadonlySet<string> = new Set(builtinModules.map((name) => name.replace(/^node:/, '')));

/** Hints for Node modules: the replacement in an inferlet, or the reason that there is none. */
const INSTEAD: Readonly<Record<string, string>> = {
  fs: 'An inferlet has no file system: take data from its input, or import the file so that it is bundled (.json and .txt are).',
  http: 'An inferlet has no sockets: talk to its client with `session` of @pie/inferlet.',
  net: 'An inferlet has no sockets: talk to its client with `session` of @pie/inferlet.',
  crypto: 'Use `crypto.getRandomValues` and `crypto.randomUUID`, which are global.',
  timers: 'Use `setTimeout`, which is global, or `sleep` of @pie/inferlet.',
  buffer: 'Use Uint8Array, TextEncoder and TextDecoder, or the npm package `buffer`.',
  events: 'Install the npm package `events`.',
  util: 'Use TextEncoder and TextDecoder, which are global, or the npm package `util`.',
  url: 'Install an npm package such as `whatwg-url`.',
  path: 'Install the npm package `path-browserify`.',
  process: 'An inferlet has no process environment: read values from its input or from the interface `runtime`.',
  os: 'An inferlet has no process environment: read values from its input or from the interface `runtime`.',
  child_process: 'An inferlet cannot start programs.',
  worker_threads: 'An inferlet runs on one thread; Promise.all over its calls runs them together.',
};

/** Modules that share another module's hint. */
const HINT_ALIASES: Readonly<Record<string, string>> = {
  https: 'http',
  http2: 'http',
  tls: 'net',
  dgram: 'net',
  dns: 'net',
  string_decoder: 'buffer',
  cluster: 'worker_threads',
};

/** Name of the Node module that an import path names (`node:fs/promises` → `fs`); null for other paths. */
export function builtinOf(path: string): string | null {
  const name = path.replace(/^node:/, '');
  if (!path.startsWith('node:') && !MODULES.has(name)) return null;
  return name.split('/')[0] ?? name;
}

/** The reason that a module is refused, and its replacement. */
export function builtinHint(name: string): string {
  return (
    INSTEAD[name] ??
    INSTEAD[HINT_ALIASES[name] ?? ''] ??
    'Inferlets run in a sandbox without Node; look for an npm package written for browsers.'
  );
}
