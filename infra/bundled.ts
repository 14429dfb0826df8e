import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, gatewayUrl } from './config.ts';
import { ConfigError } from './config-error.ts';
import { runProgram } from './programs.ts';

/** Interval at which a gateway without a runtime asks whether another machine has one; also the longest wait for an answer. */
const READY_EVERY_MS = 2000;

/** Exit code of `pie deploy --upgrading skip` when it deploys nothing, because runtimes of another release take invocations. */
const UPGRADING_EXIT = 6;

/** The function that streams a story after a start, as proof that the platform works. */
export const STORY_FUNCTION = 'text-completion';

/** Functions that a machine with a gateway and a runtime deploys before it serves: those of the story, of routes and of the first examples. */
export const FIRST_FUNCTIONS: readonly string[] = [
  STORY_FUNCTION,
  'chat-completion',
  'openai-chat',
  'openai-completions',
  'openai-responses',
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
 * Deploys bundled functions in one process, a few at a time, and shows progress. Deploys none while runtimes of another release take
 * invocations: they may not be able to run these versions.
 * @returns false when it deployed none for that reason; true otherwise, even if `names` is empty or the signal aborted
 * @throws {@link ConfigError} when a deployment fails
 */
export async function deployBundled(config: Config, names: readonly string[], signal: AbortSignal): Promise<boolean> {
  if (names.length === 0) return true;
  const args = ['gateway/cli/bin.js', 'deploy', ...DEPLOY_OPTIONS, '--upgrading', 'skip', ...sourcesOf(names)];
  const code = await runProgram(config, args, { output: 'progress', signal });
  if (code === UPGRADING_EXIT) return false;
  if (code !== 0 && !signal.aborted)
    throw new ConfigError('A bundled function could not be deployed; the output above says which one, and why.');
  return true;
}

/**
 * Deploys bundled functions one after the other, at low priority, once all runtimes that take invocations are of this release. On a machine
 * without a runtime, it first waits until another machine has one. Reports the beginning, the end and a failure through `say`; a failure never
 * makes it throw. Returns early and silently when the signal aborts.
 */
export async function deployRest(
  config: Config,
  names: readonly string[],
  signal: AbortSignal,
  say: (line: string) => void,
): Promise<void> {
  if (names.length === 0 || signal.aborted) return;
  if (!config.machine.roles.includes('runtime') && !(await waitUntilReady(config, signal))) return;
  say(`\nDeploying ${names.length} more functions in the background; \`pie list\` shows them as they come.`);
  const args = [
    'gateway/cli/bin.js',
    'deploy',
    ...DEPLOY_OPTIONS,
    '--upgrading',
    'wait',
    '--jobs',
    '1',
    '--json',
    ...sourcesOf(names),
  ];
  const code = await runProgram(config, args, { output: 'progress', signal, background: true }).catch(
    (error: Error) => {
      say(error.message);
      return null;
    },
  );
  if (signal.aborted) return;
  say(code === 0 ? `Deployed ${names.length} more functions.` : 'Some functions could not be deployed; see above.');
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
