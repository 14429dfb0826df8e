import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { findFunction } from '#gateway/cli/function-source.ts';
import { PieClient } from '#gateway/client/client.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { GpuHostStats, ModelStats } from '#gpu-host/protocol/host.ts';
import { loadConfig } from '#infra/config.ts';
import { openLinkSecurity } from '#infra/links/security.ts';
import { toMachine } from '#scheduler/links/security.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { builtComponent } from './built.ts';
import { type InvokeOptions, invoke, type StreamEvent, terminal } from './events.ts';
import { type Platform, ROOT } from './platform.ts';

const INFERLETS = path.join(ROOT, 'test/inferlets');

/** Members by which a deploy differs from the function on disk. */
export interface DeployChanges {
  readonly name?: string;
  /** Further members of the manifest. */
  readonly manifest?: Readonly<Record<string, unknown>>;
  /** The platform's key by default. */
  readonly apiKey?: string;
}

/**
 * Builds the function at a path and deploys it. Returns the version. It does the same as `pie deploy`, but without the command's two processes: these
 * cost more than a build whose result is cached.
 */
export async function deploySource(platform: Platform, target: string, changes: DeployChanges = {}): Promise<string> {
  const { entry, kind, manifest } = findFunction(target, changes.name);
  const component = kind === 'component' ? await readFile(entry) : await builtComponent(entry);
  const client = new PieClient({ url: platform.url, apiKey: changes.apiKey ?? platform.apiKey });
  const { version } = await client.deploy({ ...manifest, ...changes.manifest }, new Uint8Array(component));
  return version;
}

/** Deploys inferlets of `test/inferlets` under their own names. */
export async function deploy(platform: Platform, ...names: readonly string[]): Promise<void> {
  await Promise.all(names.map((name) => deploySource(platform, path.join(INFERLETS, `${name}.ts`), { name })));
}

/** Deploys an inferlet of `test/inferlets` with further manifest members. Returns the version. */
export function deployWith(
  platform: Platform,
  folder: string,
  manifest: Readonly<Record<string, unknown>>,
  apiKey?: string,
): Promise<string> {
  return deploySource(platform, path.join(INFERLETS, folder), { manifest, ...(apiKey !== undefined && { apiKey }) });
}

/** Invokes a function and returns its output. The invocation must succeed. */
// biome-ignore lint/suspicious/noExplicitAny: the tests read what the wire says
export async function call(platform: Platform, name: string, input: unknown, options?: InvokeOptions): Promise<any> {
  const end = terminal(await invoke(platform, name, input, options));
  assert.equal(end?.event, 'result', JSON.stringify(end?.data));
  return end?.data.output;
}

/** Invokes a function and returns its error. The invocation must fail. */
export async function failure(
  platform: Platform,
  name: string,
  input: unknown,
  options?: InvokeOptions,
): Promise<StreamEvent['data']> {
  const end = terminal(await invoke(platform, name, input, options));
  assert.equal(end?.event, 'error', JSON.stringify(end?.data));
  return end?.data;
}

/**
 * The counters of a model (the first by default) since the last reset. With several GPU hosts, the counters come from the host that computed
 * the most tokens: all invocations of a tenant run on one host.
 */
export async function modelStats(
  platform: Platform,
  options: { reset?: boolean; model?: string } = {},
): Promise<ModelStats> {
  const statsByMachine = await Promise.all(platform.gpuMachines.map((machine) => statsOn(machine, options)));
  return statsByMachine.reduce((most, stats) => (stats.tokens > most.tokens ? stats : most));
}

/** The counters of a model on the GPU host of a machine. */
export async function statsOn(
  machine: Platform,
  { reset = false, model }: { reset?: boolean; model?: string } = {},
): Promise<ModelStats> {
  const { models } = await hostStats(machine, { reset });
  const stats = model === undefined ? models[0] : models.find(({ name }) => name === model);
  assert.ok(stats);
  return stats;
}

/** The counters of the first model on each GPU host of one machine, in the order of its configuration. */
export function statsOfEachHost(machine: Platform): Promise<ModelStats[]> {
  return Promise.all(
    loadConfig(machine.environment).gpuHosts.map(async ({ address }) => {
      const [stats] = (await hostStats(machine, { address })).models;
      assert.ok(stats);
      return stats;
    }),
  );
}

/** Tokens that an encoder has computed, on all GPU hosts. */
export async function tokensEncoded(platform: Platform, encoder: string): Promise<number> {
  const hosts = await Promise.all(platform.gpuMachines.map((machine) => hostStats(machine)));
  const matching = hosts.flatMap(({ encoders }) => encoders.filter(({ name }) => name === encoder));
  return matching.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** The counters of a GPU host of a machine, the first one by default. */
async function hostStats(
  machine: Platform,
  options: { reset?: boolean; address?: string } = {},
): Promise<GpuHostStats> {
  const config = loadConfig(machine.environment);
  const { reset = false, address = config.gpuHosts[0]?.address ?? '' } = options;
  const security = config.machine.address === undefined ? undefined : securityOf(machine);
  const connection = await GpuHostConnection.connect(address, {
    ...(security && { security: toMachine(security, config.machine.name) }),
  });
  try {
    return await connection.stats({ reset });
  } finally {
    connection.close();
  }
}

const securities = new WeakMap<Platform, ReturnType<typeof openLinkSecurity>>();

/** The certificates of a machine, opened once: `openLinkSecurity` starts a timer that re-reads them until this process ends. */
function securityOf(machine: Platform): ReturnType<typeof openLinkSecurity> {
  const security = securities.get(machine) ?? openLinkSecurity(loadConfig(machine.environment), silentLog);
  securities.set(machine, security);
  return security;
}
