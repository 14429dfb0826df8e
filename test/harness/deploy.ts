import assert from 'node:assert/strict';
import path from 'node:path';
import { deployFunction } from '#gateway/cli/deployment.ts';
import { findFunction } from '#gateway/cli/function-source.ts';
import { PieClient } from '#gateway/client/client.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { ModelStats } from '#gpu-host/protocol/host.ts';
import { loadConfig } from '#infra/config.ts';
import { invoke, type StreamEvent, terminal } from './events.ts';
import { type Platform, ROOT } from './platform.ts';

/** Deploys inferlets of `test/inferlets` under their own names. */
export async function deploy(platform: Platform, ...names: readonly string[]): Promise<void> {
  for (const name of names) {
    const { code, stderr } = await platform.pie([
      'deploy',
      path.join(ROOT, `test/inferlets/${name}.ts`),
      '--name',
      name,
    ]);
    assert.equal(code, 0, stderr);
  }
}

/** Deploys an inferlet of `test/inferlets` with further manifest members. Returns the version. */
export async function deployWith(
  platform: Platform,
  folder: string,
  more: Readonly<Record<string, unknown>>,
  apiKey: string = platform.apiKey,
): Promise<string> {
  const source = findFunction(path.join(ROOT, 'test/inferlets', folder), undefined);
  const client = new PieClient({ url: platform.url, apiKey });
  const { deployed } = await deployFunction(client, { ...source, manifest: { ...source.manifest, ...more } });
  return deployed.version;
}

/** The output of an invocation that must succeed. */
// biome-ignore lint/suspicious/noExplicitAny: the tests read what the wire says
export async function call(platform: Platform, name: string, input: unknown): Promise<any> {
  const end = terminal(await invoke(platform, name, input));
  assert.equal(end?.event, 'result', JSON.stringify(end?.data));
  return end?.data.output;
}

/** The error of an invocation that must fail. */
export async function failure(platform: Platform, name: string, input: unknown): Promise<StreamEvent['data']> {
  const end = terminal(await invoke(platform, name, input));
  assert.equal(end?.event, 'error', JSON.stringify(end?.data));
  return end?.data;
}

/** The GPU host's counters of a model (the first by default) since the last reset. */
export async function modelStats(
  platform: Platform,
  options: { reset?: boolean; model?: string } = {},
): Promise<ModelStats> {
  const [host] = loadConfig(platform.environment).gpuHosts;
  const connection = await GpuHostConnection.connect(host?.address ?? '');
  try {
    const { models } = await connection.stats({ reset: options.reset ?? false });
    const stats = options.model === undefined ? models[0] : models.find((model) => model.name === options.model);
    assert.ok(stats);
    return stats;
  } finally {
    connection.close();
  }
}
