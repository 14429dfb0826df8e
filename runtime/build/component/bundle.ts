import { builtinModules } from 'node:module';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  type BuildOptions,
  type BuildResult,
  build,
  context,
  type Message,
  type OnResolveArgs,
  type Plugin,
} from 'esbuild';
import type { Diagnostic } from '../failure-schema.ts';
import { BuildError } from '../outcome.ts';
import { FIRST_LINE } from '../script/rewrite.ts';
import type { Source } from './source.ts';

const REPOSITORY = fileURLToPath(new URL('../../../', import.meta.url));
const ENTRY = 'pie:entry';

/**
 * esbuild's options for finding and reading modules, the same for every bundle of a source. A guest has globals of the web and none of Node, so
 * packages give it the build that they have for browsers: the field `browser`, also as a map, and the export conditions `worker` and `browser`, as
 * Cloudflare's wrangler does. Their builds for `workerd` import modules that only Cloudflare has. esbuild adds `browser`, `default`, and `import` or `require`
 * by itself.
 */
export const OPTIONS = {
  bundle: true,
  format: 'esm',
  platform: 'browser',
  mainFields: ['browser', 'module', 'main'],
  conditions: ['pie', 'worker', 'module'],
  loader: { '.txt': 'text', '.md': 'text' },
  define: { 'process.env.NODE_ENV': '"production"', global: 'globalThis' },
  logLevel: 'silent',
} as const satisfies BuildOptions;

export interface Bundle {
  readonly code: string;
  /** Source map of `code`, as JSON. */
  readonly map: string;
  /** Source files in the bundle, relative to the project. */
  readonly files: readonly string[];
  /** Interfaces of the contract that the bundle imports, by name (`input-text`). */
  readonly interfaces: ReadonlySet<string>;
}

/** esbuild's options for the bundle of a source. */
const bundleOptions = (source: Source) =>
  ({
    ...OPTIONS,
    stdin: { contents: entryText(source.entry), resolveDir: source.directory, sourcefile: ENTRY, loader: 'js' },
    absWorkingDir: source.directory,
    write: false,
    outfile: 'inferlet.js',
    banner: { js: FIRST_LINE },
    sourcemap: 'external',
    // A place in the author's files is enough: the files themselves stay with the author.
    sourcesContent: false,
    target: 'es2023',
    charset: 'utf8',
    legalComments: 'none',
    // Minify, because the engine keeps several copies of the source text, but keep names: stack traces show them.
    minifyWhitespace: true,
    minifySyntax: true,
    metafile: true,
    plugins: [imports()],
  }) as const satisfies BuildOptions;

/**
 * Bundles a source with its relative and npm imports into one ES module for the engine. Throws BuildError with the file, line and column of
 * every fault.
 */
export const bundle = (source: Source): Promise<Bundle> => bundleOf(source, build(bundleOptions(source)));

/** Bundles a source again and again: a later bundle reads and parses only the files that have changed. */
export interface Bundler extends AsyncDisposable {
  /** As {@link bundle}. */
  bundle(): Promise<Bundle>;
}

export async function openBundler(source: Source): Promise<Bundler> {
  const made = await context(bundleOptions(source));
  return { bundle: () => bundleOf(source, made.rebuild()), [Symbol.asyncDispose]: () => made.dispose() };
}

async function bundleOf(
  source: Source,
  building: Promise<BuildResult<ReturnType<typeof bundleOptions>>>,
): Promise<Bundle> {
  const result = await building.catch((error: unknown) => {
    throw fromEsbuild(error);
  });
  const output = (suffix: string) => result.outputFiles.find(({ path }) => path.endsWith(suffix))?.text ?? '';
  const files = Object.keys(result.metafile.inputs).filter((file) => file !== ENTRY);
  const imported = Object.values(result.metafile.outputs).flatMap(({ imports: all }) => all.map(({ path }) => path));
  const interfaces = new Set(imported.flatMap((path) => INTERFACE.exec(path)?.[1] ?? []));
  return { code: output('.js'), files, interfaces, map: withShortNames(output('.map'), source) };
}

const SDK = fileURLToPath(new URL('../../../functions/sdk/', import.meta.url));

/**
 * Names the sources of a map that are outside of the project by their package. A path to them would differ from one clone or machine to the
 * next, and with it the script, whose hash names its version.
 */
function withShortNames(map: string, { directory }: Source): string {
  const value = JSON.parse(map) as { sources: readonly string[] };
  const sources = value.sources.map((name) => {
    const inPackage = name.lastIndexOf('node_modules/');
    if (inPackage >= 0) return name.slice(inPackage + 'node_modules/'.length);
    const full = resolve(directory, name);
    return full.startsWith(SDK) ? `@pie/inferlet/${full.slice(SDK.length)}` : name;
  });
  return JSON.stringify({ ...value, sources });
}

/** Import path of an interface of the contract. */
const INTERFACE = /^pie:inferlet\/([a-z][a-z0-9-]*)(?:@|$)/;

/** The module that is bundled. It exports only `run`, so that esbuild drops what no run needs. */
const entryText = (entry: string): string => `export { run } from ${JSON.stringify(entry)};`;

/** Resolves imports that are neither relative nor from npm. */
export function imports(): Plugin {
  return {
    name: 'pie',
    setup(setup) {
      /** Resolves as if this plugin were absent. */
      const resolveWithoutPlugin = (path: string, from: Omit<OnResolveArgs, 'path' | 'pluginData'>) => {
        const { importer, namespace, resolveDir, kind, with: attributes } = from;
        return setup.resolve(path, { importer, namespace, resolveDir, kind, with: attributes, pluginData: SEEN });
      };
      setup.onResolve({ filter: /^pie:inferlet\// }, ({ path }) => ({
        path,
        external: true,
        // Lets esbuild drop unused imports of an interface.
        sideEffects: false,
      }));
      setup.onResolve({ filter: /^@pie\/inferlet(\/|$)/ }, async ({ path, pluginData, ...origin }) => {
        if (pluginData === SEEN) return undefined;
        const resolvedInProject = await resolveWithoutPlugin(path, origin);
        return resolvedInProject.errors.length === 0
          ? resolvedInProject
          : resolveWithoutPlugin(path, { ...origin, resolveDir: REPOSITORY });
      });
    },
  };
}

/** Marks a resolution that this plugin started; its handlers ignore such a resolution. */
const SEEN = Symbol('resolved by us before');

/** The text of an error, which says more of the import of a Node module that no npm package replaces. */
function worded(text: string): string {
  const path = /^Could not resolve "([^"]+)"/.exec(text)?.[1] ?? '';
  const name = builtinOf(path);
  return name === null ? text : `"${path}" is a Node module, which inferlets do not have. ${builtinHint(name)}`;
}

/** Turns an error of esbuild into a BuildError with the place of every fault; returns other errors unchanged. */
export function fromEsbuild(error: unknown): unknown {
  const messages = (error as { errors?: Message[] }).errors;
  if (!Array.isArray(messages) || messages.length === 0) return error;
  if (messages.some(({ text, location }) => location?.file === ENTRY && text.startsWith('No matching export'))) {
    return new BuildError(
      'build-failed',
      'The entry module does not export `run`.',
      'Export it: `export const run = defineInferlet(async (input) => …)` with @pie/inferlet, or `export async function run(input) {…}`.',
    );
  }
  const diagnostics = messages.map(diagnostic);
  const [first] = diagnostics;
  const firstFault = first ? `${first.file}:${first.line}:${first.column}: ${first.text}` : 'unknown error';
  const moreText = diagnostics.length > 1 ? ` (and ${diagnostics.length - 1} more)` : '';
  return new BuildError(
    'build-failed',
    `The source does not compile: ${firstFault}${moreText}`,
    hintFor(diagnostics),
    diagnostics,
  );
}

function diagnostic({ text, location, notes }: Message): Diagnostic {
  const wordedText = worded(text);
  const note = notes.find((entry) => entry.text && !location)?.text;
  return {
    file: location?.file ?? '',
    line: location?.line ?? 0,
    column: (location?.column ?? -1) + 1,
    text: note ? `${wordedText} ${note}` : wordedText,
    source: location?.lineText ?? '',
  };
}

function hintFor(diagnostics: readonly Diagnostic[]): string {
  if (diagnostics.some(({ text }) => text.includes('is a Node module'))) {
    return 'Inferlets run in a sandbox without Node: replace that import.';
  }
  if (diagnostics.some(({ text }) => text.startsWith('Could not resolve'))) {
    return 'Check the path, and install the package with npm beside the source.';
  }
  return 'Correct the source at that place and deploy again.';
}

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
function builtinOf(path: string): string | null {
  const name = path.replace(/^node:/, '');
  if (!path.startsWith('node:') && !MODULES.has(name)) return null;
  return name.split('/')[0] ?? name;
}

/** The reason that a module is refused, and its replacement. */
function builtinHint(name: string): string {
  return (
    INSTEAD[name] ??
    INSTEAD[HINT_ALIASES[name] ?? ''] ??
    'Inferlets run in a sandbox without Node; look for an npm package written for browsers.'
  );
}
