import { execFile } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { type Config, loadConfig } from '#infra/config.ts';
import { ConfigError } from '#infra/config-error.ts';
import { packageFolder } from '#infra/install.ts';
import { assertPortFree } from '#infra/port.ts';
import { connectRedis } from '#infra/redis.ts';
import { type RedisSettings, shownRedis } from '#infra/redis-settings.ts';
import type { Health, ModelInfo, PlatformLoad } from '../../app/control.ts';
import { backendText, deviceText } from '../../app/resources/platform-texts.ts';
import { PieClient } from '../../client/client.ts';
import { PieError } from '../../client/errors.ts';
import { endpointOf, tryConnect } from '../connect.ts';
import { credentialsFile, findCredentials } from '../credentials.ts';
import { toFailure } from '../failure.ts';
import { counted } from '../format.ts';
import { home, INSTALLED, pinnedNode, ROOT } from '../paths.ts';
import { runProgram } from '../programs.ts';
import { askCards } from './ask-cards.ts';
import { askNvidiaSmi, cardFindings, visibleCards } from './card-findings.ts';

const run = promisify(execFile);

/** Remedy for missing packages. */
const REINSTALL = INSTALLED
  ? 'Install Pie again with npm, optional packages included.'
  : 'Run `npm start` in the clone: it installs what is missing.';
/** Longest wait for one answer. */
const DEADLINE_MS = 5000;
/** Longest wait for the list of models. The program that prints it starts slowly on a busy machine. */
const MODELS_DEADLINE_MS = 60_000;

/** Runs the checks one after another. Makes a finding of an error in a check, and throws only unexpected errors of the running platform's check. */
export async function* checkAll(signal: AbortSignal): AsyncGenerator<Finding> {
  const checks = [checkNode, checkPackages, checkRedis, checkModels, checkCredentials];
  for (const check of checks) yield await runCheck(check);
  try {
    yield* checkCards();
  } catch (thrown) {
    yield failedFinding('cards', thrown);
  }
  yield* checkPlatform(signal);
}

async function runCheck(check: () => Promise<Finding>): Promise<Finding> {
  try {
    return await check();
  } catch (thrown) {
    return failedFinding(check.name.replace(/^check/, '').toLowerCase(), thrown);
  }
}

function failedFinding(name: string, thrown: unknown): Finding {
  if (thrown instanceof ConfigError)
    return { name, state: 'failed', detail: thrown.message, advice: 'Correct the setting that it names.' };
  const { message, why, advice } = toFailure(thrown);
  const detail = why === undefined ? message : `${message} (${why})`;
  return { name, state: 'failed', detail, ...(advice === undefined ? {} : { advice }) };
}

async function checkNode(): Promise<Finding> {
  const pinnedVersion = nodeVersion();
  const { stdout } = await run(pinnedNode(), ['--version'], { timeout: DEADLINE_MS });
  const installedVersion = stdout.trim().replace(/^v/, '');
  if (installedVersion === pinnedVersion)
    return { name: 'node', state: 'ok', detail: `${installedVersion}, as pinned` };
  return {
    name: 'node',
    state: 'failed',
    detail: `${installedVersion} is installed, but package.json pins ${pinnedVersion}`,
    advice: REINSTALL,
  };
}

async function checkPackages(): Promise<Finding> {
  const missing = Object.keys(dependencies()).filter((name) => packageFolder(name) === undefined);
  if (missing.length === 0) return { name: 'packages', state: 'ok', detail: 'all installed' };
  return {
    name: 'packages',
    state: 'failed',
    detail: `missing: ${missing.join(', ')}`,
    advice: REINSTALL,
  };
}

/** The list of models. `models` are on this machine; a further member, `available`, lists known models that are not on it. */
const modelListSchema = z.object({
  models: z.array(z.object({ name: z.string(), memory: z.string().optional() })),
});

async function checkModels(): Promise<Finding> {
  const { code, stdout, stderr } = await runProgram(
    'gpu-host/models/main.ts',
    ['list', '--json'],
    'read',
    MODELS_DEADLINE_MS,
  );
  if (code !== 0)
    return {
      name: 'models',
      state: 'failed',
      detail: stderr.trim() || `the list of models failed with exit code ${code}`,
    };
  const { models } = modelListSchema.parse(JSON.parse(stdout));
  const detail = models
    .map(({ name, memory }) => (memory === undefined ? name : `${name}: ${memory}`))
    .join('\n      ');
  if (models.length > 0) return { name: 'models', state: 'ok', detail };
  return {
    name: 'models',
    state: 'warning',
    detail: 'none on this machine yet',
    advice:
      '`npm start` pulls the default one; `pie models pull stories15m` does it now. `pie models pull --help` lists the formats that load.',
  };
}

async function checkCredentials(): Promise<Finding> {
  const file = credentialsFile();
  if (process.env.PIE_URL && process.env.PIE_API_KEY) {
    return { name: 'credentials', state: 'ok', detail: 'PIE_URL and PIE_API_KEY' };
  }
  if (!existsSync(file)) {
    return {
      name: 'credentials',
      state: 'warning',
      detail: `${file} does not exist yet`,
      advice: 'The first `npm start` writes it. For another platform set PIE_URL and PIE_API_KEY.',
    };
  }
  // Throws when the file cannot be used; `runCheck` makes a finding of the error.
  findCredentials();
  const mode = statSync(file).mode & 0o777;
  if ((mode & 0o077) !== 0) {
    return {
      name: 'credentials',
      state: 'warning',
      detail: `others on this machine can read ${file} (mode ${mode.toString(8)})`,
      advice: `chmod 600 ${file}`,
    };
  }
  return { name: 'credentials', state: 'ok', detail: file };
}

/** Checks the running platform: its port, its gateway, its parts, the key. */
async function* checkPlatform(signal: AbortSignal): AsyncGenerator<Finding> {
  let credentials: ReturnType<typeof findCredentials>;
  try {
    credentials = findCredentials();
  } catch (thrown) {
    if (existsSync(credentialsFile()) || toFailure(thrown).code !== 'no-credentials') {
      yield failedFinding('gateway', thrown);
      return;
    }
    // No platform has started in this home yet: check that its gateway could listen.
    yield await runCheck(checkPort);
    return;
  }
  const problem = await tryConnect(endpointOf(new URL(credentials.url)), DEADLINE_MS);
  if (problem !== null) {
    yield {
      name: 'gateway',
      state: 'failed',
      detail: `nothing answers at ${credentials.url}: ${problem}`,
      advice: `Start it with \`npm start\` (or \`pie up\`). Logs of the last run are in ${path.join(home(), 'logs')}.`,
    };
    return;
  }
  const client = new PieClient({
    url: credentials.url,
    apiKey: credentials.apiKey,
    timeoutMs: DEADLINE_MS,
    reconnectMs: 0,
  });
  try {
    const health = await client.ready({ signal });
    yield { name: 'gateway', state: 'ok', detail: `${credentials.url} answers` };
    yield* health.checks.map(partFinding);
    const self = await client.self({ signal });
    yield { name: 'key', state: 'ok', detail: `tenant ${self.tenant}, may ${self.scopes.join(', ')}` };
    yield* proofFindings(await client.models({ signal }));
    if (self.scopes.includes('operator')) {
      const load = await client.operations.load({ signal });
      yield* hostFindings(load);
      yield* isolationFindings(load);
      yield* limitFindings(load);
    }
  } catch (error) {
    if (!(error instanceof PieError)) throw error;
    yield {
      name: error.code === 'unauthorized' ? 'key' : 'gateway',
      state: 'failed',
      detail: error.message,
      ...(error.hint === undefined ? {} : { advice: error.hint }),
    };
  }
}

/** The finding for one check of `/readyz`. Functions that are not deployed are a warning only: the platform's start still deploys them. */
function partFinding({ name, ok, detail }: Health['checks'][number]): Finding {
  // The check has a detail when functions are missing, also when the platform is ready without them.
  if (name === 'functions' && detail !== undefined) {
    const advice = `Wait: the platform is still deploying them, and tries those that failed again. ${path.join(home(), 'logs', 'supervisor.log')} has the reasons.`;
    return { name, state: 'warning', detail, advice };
  }
  if (ok) return { name, state: 'ok', detail: detail ?? 'ready' };
  const advice = `Look into ${path.join(home(), 'logs')}; the supervisor restarts processes that died.`;
  return { name, state: 'failed', detail: detail ?? 'not ready', advice };
}

/** One warning for each served model that has not answered the platform. */
function proofFindings(models: readonly ModelInfo[]): Finding[] {
  return models.flatMap(({ name, unproven, aliasOf }): Finding[] => {
    if (unproven === undefined || aliasOf !== undefined) return [];
    const advice =
      'The platform serves the model, and asks it again from time to time. If the reason lasts, correct the model’s files or choose another model.';
    return [{ name: `model ${name}`, state: 'warning', detail: `unproven: ${unproven}`, advice }];
  });
}

/** One finding per GPU host of the running platform: its models and their devices, or that it is drained or disconnected. */
function hostFindings({ gpuHosts }: PlatformLoad): Finding[] {
  return gpuHosts.map(({ name, connected, drained, models }): Finding => {
    const computes = models
      .map((each) => {
        const why = each.reason === null ? '' : ` (${each.reason})`;
        return `${each.model} by ${backendText(each)} on ${deviceText(each)}${why}`;
      })
      .join('; ');
    if (drained) {
      const advice = `It takes no new invocations until \`pie gpu-hosts undrain ${name}\`.`;
      return { name, state: 'warning', detail: `drained; ${connected ? 'connected' : 'away'}`, advice };
    }
    if (connected) return { name, state: 'ok', detail: computes };
    return {
      name,
      state: 'failed',
      detail: computes === '' ? 'not connected yet' : `away; before, it had ${computes}`,
      advice: `It may be loading its models, or starting again: look into ${path.join(home(), 'logs', `${name}.log`)}.`,
    };
  });
}

/** Isolation of the processes that handle untrusted bytes, for each runtime. */
function isolationFindings({ runtimes }: PlatformLoad): Finding[] {
  return runtimes.flatMap(({ name, alive, isolation, isolationNotice }): Finding[] => {
    if (!alive || isolation === null) return [];
    const finding = { name: `isolation of ${name}`, detail: isolation };
    if (isolationNotice === null) return [{ ...finding, state: 'ok' }];
    return [{ ...finding, state: 'warning', advice: isolationNotice }];
  });
}

/** The kernel's limits on the sandboxes of each runtime. */
function limitFindings({ runtimes }: PlatformLoad): Finding[] {
  return runtimes.flatMap(({ name, alive, limits }): Finding[] => {
    if (!alive || limits === null) return [];
    const { memory, demotion, notice } = limits;
    const finding = { name: `limits of ${name}`, detail: `memory by ${memory}, demotion by ${demotion}` };
    if (notice === null) return [{ ...finding, state: 'ok' }];
    return [{ ...finding, state: 'warning', advice: notice }];
  });
}

/** Versions of packages in package.json, by the package's name. */
function dependencies(kind: 'dependencies' | 'optionalDependencies' = 'dependencies'): Record<string, string> {
  const manifest = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as Record<string, unknown>;
  return (manifest[kind] ?? {}) as Record<string, string>;
}

/** The version of Node that package.json pins: that of the optional dependencies which contain Node, one per operating system and processor. */
function nodeVersion(): string {
  const [, version] =
    Object.entries(dependencies('optionalDependencies')).find(([name]) => name.startsWith('node-')) ?? [];
  return version ?? 'none';
}

const SMI_DEADLINE_MS = 15_000;
const CONNECT_DEADLINE_MS = 1000;

/** Checks the configuration against this machine's cards. */
export async function* checkCards(): AsyncGenerator<Finding> {
  let config: Config;
  try {
    config = loadConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    yield {
      name: 'configuration',
      state: 'failed',
      detail: error.message,
      advice: 'Correct the setting that it names.',
    };
    return;
  }
  yield configurationFinding(config);
  const { CUDA_VISIBLE_DEVICES: visible } = process.env;
  const localHosts = config.gpuHosts.filter(({ address }) => !isElsewhere(address));
  const [answer, smi, problems] = await Promise.all([
    askCards(),
    askNvidiaSmi(SMI_DEADLINE_MS),
    Promise.all(localHosts.map(({ address }) => tryConnect({ path: address }, CONNECT_DEADLINE_MS))),
  ]);
  // `tryConnect` returns null when a GPU host of this machine accepts the connection: then the platform runs.
  const cardsSeen = { answer, smi: visibleCards(smi, visible), running: problems.includes(null), visible };
  yield* cardFindings({ ...cardsSeen, hosts: localHosts });
}

function configurationFinding({ gpuHosts, models }: Config): Finding {
  const modelsText = models.map(({ name, backend }) => `${name} by ${backend}`).join(', ');
  return { name: 'configuration', state: 'ok', detail: `${modelsText}; ${counted(gpuHosts.length, 'GPU host')}` };
}

/** True for `host:port`, false for the path of a socket. */
const isElsewhere = (address: string): boolean => !address.includes('/') && /:\d+$/.test(address);

/**
 * Checks that the gateway of the configuration can listen.
 *
 * @throws ConfigError when it cannot, or the configuration is wrong
 */
export async function checkPort(environment: NodeJS.ProcessEnv = process.env): Promise<Finding> {
  const config = loadConfig(environment);
  if (!config.machine.roles.includes('gateway')) {
    return { name: 'port', state: 'ok', detail: 'this machine runs no gateway' };
  }
  await assertPortFree(config);
  return { name: 'port', state: 'ok', detail: `${config.port} on ${config.host} is free` };
}

/**
 * Checks the Redis of the configuration.
 *
 * @throws ConfigError when the configuration is wrong
 */
export async function checkRedis(environment: NodeJS.ProcessEnv = process.env): Promise<Finding> {
  const { redis } = loadConfig(environment);
  return redis.kind === 'private' ? checkRedisProgram() : pingRedis(redis);
}

/** Connects as the platform does: with the password, over TLS, or to a unix socket. */
async function pingRedis(redis: RedisSettings): Promise<Finding> {
  const addressText = shownRedis(redis);
  const connection = connectRedis(
    { redis },
    {
      lazyConnect: true,
      connectTimeout: DEADLINE_MS,
      commandTimeout: DEADLINE_MS,
      retryStrategy: () => null,
    },
  );
  let problem = '';
  // The rejection of a failed connection says only that it closed; this event says why.
  connection.on('error', (error) => {
    problem = error.message;
  });
  try {
    await connection.connect();
    await connection.ping();
    return { name: 'redis', state: 'ok', detail: `${addressText} answers` };
  } catch (thrown) {
    return {
      name: 'redis',
      state: 'failed',
      detail: `${addressText}: ${problem || (thrown instanceof Error ? thrown.message : String(thrown))}`,
      advice: 'Correct REDIS_URL, or url and ca below [redis] in pie.toml. Without a url Pie starts a private server.',
    };
  } finally {
    connection.disconnect();
  }
}

async function checkRedisProgram(): Promise<Finding> {
  try {
    const { stdout } = await run('redis-server', ['--version'], { timeout: DEADLINE_MS });
    return { name: 'redis', state: 'ok', detail: `redis-server ${/v=([\d.]+)/.exec(stdout)?.[1] ?? 'found'}` };
  } catch (error) {
    const failed = { name: 'redis', state: 'failed' } as const;
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') {
      return {
        ...failed,
        detail: 'redis-server is not on the PATH',
        advice: 'Install it (Debian: `sudo apt-get install redis-server`), or set REDIS_URL.',
      };
    }
    return {
      ...failed,
      detail: `\`redis-server --version\` failed: ${error instanceof Error ? error.message : String(error)}`,
      advice: 'Run that command and correct what it reports, or set REDIS_URL.',
    };
  }
}

/** Result of one check. */
export interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'failed';
  readonly detail: string;
  readonly advice?: string;
}
