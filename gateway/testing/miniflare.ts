import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { Miniflare } from 'miniflare';
import { z } from 'zod';

const folder = new URL('../', import.meta.url);

/** The settings in `wrangler.jsonc` that the tests use, so that they run the deployed configuration. */
const configSchema = z.object({
  main: z.string(),
  compatibility_date: z.string(),
  compatibility_flags: z.array(z.string()),
});

/** Starts the gateway's worker in workerd, as `wrangler.jsonc` describes it, in front of a Node gateway. */
export async function startWorker(
  originUrl: string,
  bindings: Readonly<Record<string, string>> = {},
): Promise<{ url: string; stop(): Promise<void> }> {
  const text = await readFile(new URL('wrangler.jsonc', folder), 'utf8');
  const config = configSchema.parse(JSON.parse(text.replaceAll(/^\s*\/\/.*$/gm, '')));
  const miniflare = new Miniflare({
    modules: [
      { type: 'ESModule', path: 'worker.js', contents: await bundle(fileURLToPath(new URL(config.main, folder))) },
    ],
    compatibilityDate: config.compatibility_date,
    compatibilityFlags: config.compatibility_flags,
    bindings: { ...bindings, ORIGIN_URL: originUrl },
    host: '127.0.0.1',
    port: 0,
  });
  const url = (await miniflare.ready).origin;
  return { url, stop: () => miniflare.dispose() };
}

/** Bundles the worker into one module. An import of `node:…` fails here. */
async function bundle(entry: string): Promise<string> {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    mainFields: ['module', 'main'],
    conditions: ['workerd', 'worker', 'import'],
  });
  const [output] = result.outputFiles;
  if (output === undefined) throw new Error('esbuild wrote nothing');
  return output.text;
}
