import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { type Config, gatewayUrl } from './config.ts';
import { ConfigError } from './config-error.ts';
import type { Logger } from './log.ts';
import type { PendingFunctions } from './pending-functions.ts';
import { runProgram } from './programs.ts';

/** Interval at which a gateway without a runtime asks whether another machine has one; also the longest wait for an answer. */
const READY_EVERY_MS = 2000;

/** Exit code of `pie deploy` when the gateway, or a part of the platform behind it, does not answer or is restarting. */
export const UNREACHABLE_EXIT = 4;

/** Exit code of `pie deploy --upgrading skip` when it deploys nothing, because runtimes of another release take invocations. */
export const UPGRADING_EXIT = 6;

/** Functions that a machine with a gateway and a runtime deploys before it serves: those of routes and of the first examples. */
export const FIRST_FUNCTIONS: readonly string[] = [
  'text-completion',
  'chat-completion',
  'openai-chat',
  'openai-completions',
  'openai-responses',
  'anthropic-messages',
  'parallel-generation',
  'echo-session',
];

/** The function of `pie demo`. It is deployed together with {@link FIRST_FUNCTIONS}, because a new user runs the demo soon. */
const DEMO_FUNCTION = 'story-agent';

/** The function behind the route of each kind of encoder. */
const ENCODER_FUNCTIONS = { embedding: 'openai-embeddings', reranker: 'rerank' } as const;

/** {@link FIRST_FUNCTIONS}, the demo's function, and the functions behind the routes of the configured encoders. */
export function firstFunctions({ encoders }: Pick<Config, 'encoders'>): string[] {
  return [...FIRST_FUNCTIONS, DEMO_FUNCTION, ...new Set(encoders.map(({ kind }) => ENCODER_FUNCTIONS[kind]))];
}

/** Names of the functions that came with this Pie, {@link FIRST_FUNCTIONS} first. */
export function bundledFunctions({ root }: Pick<Config, 'root'>): string[] {
  const folder = path.join(root, 'functions');
  const folderNames = readdirSync(folder).filter((name) => existsSync(path.join(folder, name, 'pie.json')));
  return [
    ...FIRST_FUNCTIONS.filter((name) => folderNames.includes(name)),
    ...folderNames.filter((name) => !FIRST_FUNCTIONS.includes(name)),
  ];
}

/** @throws {@link ConfigError} for a name that no bundled function has */
export function assertBundled(config: Pick<Config, 'root'>, names: readonly string[]): void {
  const bundled = bundledFunctions(config);
  const unknown = names.find((name) => !bundled.includes(name));
  if (unknown === undefined) return;
  throw new ConfigError(`There is no bundled function "${unknown}". The bundled ones: ${bundled.join(', ')}.`);
}

/**
 * What became of the functions that a start deploys before it serves: all are `deployed`; none is, because runtimes of another release take
 * invocations (`upgrading`); or some may be missing, because the platform did not answer in any try (`unreachable`).
 */
type FirstDeploy = 'deployed' | 'upgrading' | 'unreachable';

/** Pauses before the next tries of {@link deployBundled}, ms. The supervisor starts a gateway that died again within a few seconds. */
const FIRST_PAUSES_MS: readonly number[] = [1000, 2000, 4000, 8000];

interface DeployBundledOptions {
  readonly signal: AbortSignal;
  /** Gets lines for the terminal. */
  readonly say: (line: string) => void;
  readonly log: Logger;
  /** Pauses before the second and each further try, ms. */
  readonly pausesMs?: readonly number[];
}

/**
 * Deploys bundled functions in one process, a few at a time, and shows progress. Deploys none while runtimes of another release take
 * invocations: they may not be able to run these versions. Tries again when the platform does not answer, since a process that died comes back;
 * a function that is deployed already is not built again.
 * @returns `deployed` also if `names` is empty or the signal aborted
 * @throws {@link ConfigError} when a function cannot be built or the platform refuses it
 */
export async function deployBundled(
  config: Config,
  names: readonly string[],
  { signal, say, log, pausesMs = FIRST_PAUSES_MS }: DeployBundledOptions,
): Promise<FirstDeploy> {
  if (names.length === 0) return 'deployed';
  const args = ['gateway/cli/bin.js', 'deploy', ...DEPLOY_OPTIONS, '--upgrading', 'skip', ...sourcesOf(names)];
  for (let tries = 1; ; tries++) {
    const code = await runProgram(config, args, { output: 'progress', signal });
    if (code === 0 || signal.aborted) return 'deployed';
    if (code === UPGRADING_EXIT) return 'upgrading';
    if (code !== UNREACHABLE_EXIT)
      throw new ConfigError('A bundled function could not be deployed; the output above says which one, and why.');
    const pauseMs = pausesMs[tries - 1];
    log.warn({ functions: names, tries, retryInMs: pauseMs }, 'the platform did not answer while it got its functions');
    if (pauseMs === undefined) return 'unreachable';
    say(`  The platform did not answer; next try to deploy its functions in ${pauseMs / 1000} s`);
    await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return 'deployed';
  }
}

/** Pause before the first retry of a function; each further failure doubles it, up to `MAX_RETRY_MS`. */
const FIRST_RETRY_MS = 5000;
const MAX_RETRY_MS = 10 * 60_000;

/**
 * The pause before the next try to deploy a function.
 *
 * @param tries failed tries, at least 1
 * @param random a number from 0 to 1, so that the machines of a platform do not try at once
 */
export function retryPauseMs(tries: number, random: number): number {
  return Math.min(FIRST_RETRY_MS * 2 ** (tries - 1), MAX_RETRY_MS) * (0.5 + random / 2);
}

interface DeployRestOptions {
  readonly pending: PendingFunctions;
  /** The names that remain to be deployed are tried until it aborts. */
  readonly signal: AbortSignal;
  /** Gets lines for the terminal. */
  readonly say: (line: string) => void;
  readonly log: Logger;
  /** Pause after a number of failed tries, ms; {@link retryPauseMs} by default. */
  readonly pauseMs?: (tries: number) => number;
}

/**
 * Deploys bundled functions one after the other, at low priority, once all runtimes that take invocations are of this release. On a machine
 * without a runtime, it first waits until another machine has one. Tries each function again until it is deployed; `pending` and the log say why.
 * Resolves when all are deployed, or the signal aborts.
 */
export async function deployRest(config: Config, names: readonly string[], options: DeployRestOptions): Promise<void> {
  const { pending, signal, say, log, pauseMs = (tries) => retryPauseMs(tries, Math.random()) } = options;
  if (names.length === 0 || signal.aborted) return;
  if (!config.machine.roles.includes('runtime') && !(await waitUntilReady(config, signal))) return;
  say(`\nDeploying ${names.length} more functions in the background; \`pie list\` shows them as they come.`);
  for (let due = names; !signal.aborted; ) {
    const failed = (name: string, why: string) => {
      const tries = (pending.get(name)?.tries ?? 0) + 1;
      const retryInMs = Math.round(pauseMs(tries));
      pending.change([name], { state: 'failed', tries, why, nextTryAt: Date.now() + retryInMs });
      log.warn({ function: name, cause: why, tries, retryInMs }, 'a bundled function could not be deployed');
      say(`  ${name} could not be deployed (${why}); next try in ${Math.ceil(retryInMs / 1000)} s`);
    };
    await deployOnce(config, due, { pending, signal, log, failed });
    const left = names.flatMap((name) => pending.get(name) ?? []);
    if (left.length === 0) {
      say(`Deployed ${names.length} more functions.`);
      return;
    }
    const nextTryAt = Math.min(...left.map((one) => one.nextTryAt ?? 0));
    await sleep(Math.max(0, nextTryAt - Date.now()), undefined, { signal }).catch(() => undefined);
    due = left.filter((one) => (one.nextTryAt ?? 0) <= Math.max(nextTryAt, Date.now())).map(({ name }) => name);
  }
}

/** A line of `pie deploy --json`: the report of a function, or a failure. */
const deployLine = z.union([
  z.object({ name: z.string(), version: z.string() }),
  z.object({ error: z.object({ code: z.string(), message: z.string(), why: z.string().optional() }) }),
]);

/** Tries to deploy functions once. Calls `failed` for each that is not deployed, unless the signal aborts. */
async function deployOnce(
  config: Config,
  names: readonly string[],
  {
    pending,
    signal,
    log,
    failed,
  }: Pick<DeployRestOptions, 'pending' | 'signal' | 'log'> & { readonly failed: (name: string, why: string) => void },
): Promise<void> {
  const remaining = new Set(names);
  /** The error of no function in particular, such as a gateway that does not answer. */
  let commonError = '';
  /** The last line that is neither a report nor a failure: a crash ends with its reason. */
  let lastLine = '';
  const beginNext = () => {
    const [next] = remaining;
    if (next !== undefined) pending.change([next], { state: 'building' });
  };
  const read = (line: string) => {
    const parsed = deployLine.safeParse(jsonIn(line));
    if (!parsed.success) {
      lastLine = line;
      return;
    }
    if ('error' in parsed.data) {
      const { code, message, why } = parsed.data.error;
      // Of several functions, the message begins with the name of the one that failed.
      const name = names.length === 1 ? names[0] : names.find((one) => message.startsWith(`${one}: `));
      const text = message.startsWith(`${name}: `) ? message.slice(`${name}: `.length) : message;
      const reason = `${code}: ${text}${why === undefined ? '' : ` (${why})`}`;
      if (name === undefined) commonError = reason;
      if (name === undefined || !remaining.delete(name)) return;
      failed(name, reason);
    } else {
      const { name, version } = parsed.data;
      if (!remaining.delete(name)) return;
      pending.deployed([name]);
      log.info({ function: name, version }, 'a bundled function is deployed');
    }
    beginNext();
  };
  beginNext();
  const args = ['gateway/cli/bin.js', 'deploy', ...DEPLOY_OPTIONS, '--upgrading', 'wait', '--jobs', '1', '--json'];
  const end = await runProgram(config, [...args, ...sourcesOf(names)], { output: read, signal, background: true }).then(
    (code) => `\`pie deploy\` ended with ${code === null ? 'a signal' : `exit code ${code}`}`,
    (error: Error) => `\`pie deploy\` could not be started: ${error.message}`,
  );
  if (signal.aborted) return;
  const cause = (commonError || lastLine).slice(0, MAX_LINE);
  for (const name of remaining) failed(name, cause === '' ? end : `${end}: ${cause}`);
}

/** Maximum characters of a program's last line in the reason of a failure. */
const MAX_LINE = 300;

function jsonIn(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

/**
 * Waits until `/readyz` answers 200. Then another machine has a runtime, which builds the functions, and some machine has a GPU host. Resolves
 * to false when the signal aborts.
 */
async function waitUntilReady(config: Config, signal: AbortSignal): Promise<boolean> {
  const url = `${gatewayUrl(config)}/readyz`;
  while (!signal.aborted) {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(READY_EVERY_MS)]);
    const isReady = await fetch(url, { signal: limit }).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isReady) return true;
    await sleep(READY_EVERY_MS, undefined, { signal }).catch(() => undefined);
  }
  return false;
}

/** With `--if-new`, content that was deployed before does not replace the served version: a restart must not undo an operator's rollback. */
const DEPLOY_OPTIONS = ['--if-new', '--message', 'came with Pie'];

const sourcesOf = (names: readonly string[]): string[] => names.map((name) => path.join('functions', name));
