import { readFileSync } from 'node:fs';
import os from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { LIVE, NO_ALIAS } from '#scheduler/functions/aliases.ts';
import type { DeployPlan, DeployTarget, PlatformLoad } from '../../app/control.ts';
import type { PieClient } from '../../client/client.ts';
import { PieError } from '../../client/errors.ts';
import { pause } from '../../client/http.ts';
import { type Build, type Built, buildSource, withLocalSource } from '../builder.ts';
import { type Call, defineCommand } from '../command.ts';
import { type Deployment, planLines, reportLines } from '../deploy-report.ts';
import { EXIT, Failure, toFailure } from '../failure.ts';
import { bytes, counted, duration, latency, quoted, type Targets, wholeNumber } from '../format.ts';
import { type FunctionSource, findFunction } from '../function-source.ts';
import { acceptedExample } from '../input.ts';

/** Deploys at once: the platform evaluates a script on a core. */
const DEFAULT_JOBS = Math.min(4, os.availableParallelism());

const UPGRADE_POLL_MS = 2000;

const OPTIONS = [
  { flags: '-n, --name <name>', help: 'name of the function (default: the manifest’s name, else the file’s)' },
  { flags: '-m, --message <text>', help: 'description of the change, stored with the version' },
  {
    flags: '-a, --alias <alias>',
    help: `alias to point at the version (default: live); "${NO_ALIAS}" changes no alias`,
  },
  { flags: '-t, --tag <tag>', help: 'tag of the version, such as v1.2' },
  latency('latency targets in place of the manifest’s'),
  { flags: '--dry-run', help: 'check, and show what would change; store nothing' },
  { flags: '--if-new', help: 'change no alias if this content was deployed before' },
  {
    flags: '--upgrading <what>',
    help: `while runtimes of another release, which may lack calls of this one, take invocations: wait, or skip the deploy (exit code ${EXIT.upgrading})`,
    choices: ['wait', 'skip'],
  },
  {
    flags: '-j, --jobs <count>',
    help: `number of functions to deploy at once (default: ${DEFAULT_JOBS})`,
    parse: wholeNumber(1, 64),
  },
] as const;

type DeployCall = Call<typeof OPTIONS>;

export const deploy = defineCommand({
  name: 'deploy',
  summary: 'Deploy functions',
  description:
    'Builds a function and deploys it as a new version, which the alias `live` serves from then on. An unchanged function is not stored again. ' +
    'When one of several functions fails, the others are still deployed.',
  arguments: [
    {
      name: 'source',
      help: 'one or several of: a folder with a pie.json, a .ts, .js, .c or .rs file, a .pie script, a .wasm component (default: the current folder)',
      required: false,
      rest: true,
    },
  ],
  options: OPTIONS,
  examples: [
    { line: 'pie deploy functions/text-completion', does: 'deploys a folder with its manifest' },
    { line: 'pie deploy hello.ts', does: 'deploys one file as the function "hello"' },
    { line: 'pie deploy hello.pie', does: 'deploys a script that `pie build` wrote' },
    { line: 'pie deploy hello.wasm --name greeter', does: 'deploys a component from any language' },
    { line: 'pie deploy story --message "shorter" --tag v1.2', does: 'adds a description and a tag' },
    { line: 'pie deploy story --alias canary', does: 'leaves the live version; invoke the new one as story@canary' },
    { line: 'pie deploy story --latency 300,40', does: 'states latency targets, within the quota of its tenant' },
    { line: 'pie deploy story --dry-run', does: 'shows what would change, and what would fail' },
    { line: 'pie deploy functions/tree-of-thought functions/rag', does: 'deploys two functions' },
  ],
  async run(call) {
    const { args, options } = call;
    const { name, latency: targets, upgrading } = options;
    const sourceOf = (target: string) => withLatency(findFunction(target, name), targets);
    if (upgrading !== undefined && !(await isUpgraded(call, upgrading === 'wait'))) return EXIT.upgrading;
    if (args.length <= 1) return deployOne(call, sourceOf(args[0] ?? '.'));
    if (name !== undefined)
      throw new Failure('--name names one function, and several were given.', {
        advice: 'Leave --name out, or deploy them one by one.',
      });
    return deployAll(call, args.map(sourceOf));
  },
});

/**
 * True once all runtimes that take invocations are of this release. The wait goes on while gateways and stores restart, as they do in an upgrade.
 * @param shouldWait true to wait until then; false to return false at once while a runtime is of another release
 */
async function isUpgraded({ connect, terminal, signal }: Call, shouldWait: boolean): Promise<boolean> {
  const { client } = await connect();
  for (let lastReason = ''; ; await sleep(UPGRADE_POLL_MS, undefined, { signal })) {
    const reason = await upgradeUnderWay(client, signal, shouldWait);
    if (reason === null) return true;
    if (reason !== lastReason)
      terminal.note(`${reason} ${shouldWait ? 'Waiting until they are upgraded.' : 'Nothing was deployed.'}`);
    if (!shouldWait) return false;
    lastReason = reason;
  }
}

/**
 * The reason why runtimes may lack calls of this release; null when none does.
 * @param shouldWait when true, a platform that cannot be asked is a reason, too
 */
async function upgradeUnderWay(client: PieClient, signal: AbortSignal, shouldWait: boolean): Promise<string | null> {
  try {
    const load: PlatformLoad = await client.operations.load({ signal });
    if (load.otherContracts.length === 0) return null;
    return `Runtimes of another release take invocations and may lack calls of this one: ${load.otherContracts.join(', ')}.`;
  } catch (error) {
    if (shouldWait && error instanceof PieError && error.retryable)
      return `The runtimes cannot be listed now: ${error.message}`;
    throw error;
  }
}

/** The function with `targets` in place of its manifest's latency targets, if any are given. */
function withLatency(source: FunctionSource, targets: Targets | undefined): FunctionSource {
  if (targets === undefined) return source;
  return { ...source, manifest: { ...source.manifest, latency: targets } };
}

async function deployOne(call: DeployCall, source: FunctionSource): Promise<number> {
  const { terminal, connect, signal, options } = call;
  const { name } = source.manifest;
  const { client, credentials } = await connect();
  if (options.dryRun) return planOne(call, client, source);
  const progress = terminal.progress(`Building ${name}`);
  try {
    const deployment = await deployFunction(client, source, {
      ...targetOf(options),
      signal,
      onBuilt: (size) => progress.update(`Deploying ${name} (${bytes(size)})`),
    });
    const { deployed, deployMs } = deployment;
    const url = addressOf(credentials.url, name);
    progress.done(`Deployed ${name} (${bytes(deployment.bytes)}) in ${duration(deployMs)}`);
    terminal.print(versionLine(deployment));
    for (const line of reportLines(deployment)) terminal.print(line);
    terminal.print(`${url}/invocations`);
    terminal.value(reportOf(deployment, url));
    for (const note of deployment.built?.notes ?? []) terminal.note(`note: ${note}`);
    for (const warning of deployed.warnings) terminal.note(`warning: ${warning}`);
    const example = await acceptedExample(source.manifest);
    const input = example === undefined ? "'<JSON>'" : quoted(JSON.stringify(example));
    terminal.note(`Next: pie invoke ${referenceTo(deployed)} --input ${input}`);
    return EXIT.ok;
  } catch (error) {
    progress.clear();
    throw error;
  }
}

async function planOne(
  { terminal, signal, options }: DeployCall,
  client: PieClient,
  source: FunctionSource,
): Promise<number> {
  const { name } = source.manifest;
  const progress = terminal.progress(`Building ${name}`);
  try {
    const plan = await planFunction(client, source, {
      ...targetOf(options),
      signal,
      onBuilt: () => progress.update(`Checking ${name}`),
    });
    progress.done(`Checked ${name}; nothing was stored`);
    terminal.print(`${name}@${plan.version}`);
    for (const line of planLines(plan)) terminal.print(line);
    terminal.value(plan);
    for (const warning of plan.warnings) terminal.note(`warning: ${warning}`);
    return EXIT.ok;
  } catch (error) {
    progress.clear();
    throw error;
  }
}

function targetOf({ alias, tag, message, ifNew }: DeployCall['options']): DeployTarget {
  return {
    ...(alias === undefined ? {} : { alias: alias === NO_ALIAS ? null : alias }),
    tag,
    message,
    onlyNew: ifNew,
  };
}

/** Deploys several functions, a few at a time. Returns the exit code of the first failure. */
async function deployAll(
  { options, terminal, connect, signal }: DeployCall,
  sources: readonly FunctionSource[],
): Promise<number> {
  const { client, credentials } = await connect();
  const startedAt = performance.now();
  const progress = terminal.progress(`Deploying ${counted(sources.length, 'function')}`);
  const failures: Failure[] = [];
  const notes: string[] = [];
  const warnings: string[] = [];
  /** All workers share this iterator: each takes the next source. */
  const sourceQueue = sources.values();
  let doneCount = 0;
  let createdCount = 0;
  const work = async () => {
    for (const source of sourceQueue) {
      const { name } = source.manifest;
      try {
        if (options.dryRun) {
          const plan = await planFunction(client, source, { ...targetOf(options), signal });
          terminal.print(`${name}@${plan.version}`);
          for (const line of planLines(plan)) terminal.print(line);
          terminal.value({ name, ...plan });
          warnings.push(...plan.warnings.map((warning) => `${name}: ${warning}`));
        } else {
          const deployment = await deployFunction(client, source, { ...targetOf(options), signal });
          if (deployment.deployed.created) createdCount++;
          terminal.value(reportOf(deployment, addressOf(credentials.url, name)));
          notes.push(...(deployment.built?.notes ?? []).map((note) => `${name}: ${note}`));
          warnings.push(...deployment.deployed.warnings.map((warning) => `${name}: ${warning}`));
        }
      } catch (error) {
        signal.throwIfAborted();
        const failure = prefixedFailure(name, toFailure(error));
        failures.push(failure);
        // A program that reads the output learns of a failure at once.
        if (terminal.json) terminal.failure(failure);
      }
      progress.update(`Deploying: ${++doneCount} of ${sources.length}, last ${name}`);
    }
  };
  try {
    await Promise.all(Array.from({ length: options.jobs ?? DEFAULT_JOBS }, work));
  } catch (error) {
    progress.clear();
    throw error;
  }
  const elapsed = duration(performance.now() - startedAt);
  const succeededText = counted(sources.length - failures.length, 'function');
  progress.done(
    options.dryRun
      ? `Checked ${succeededText} in ${elapsed}; nothing was stored`
      : `Deployed ${succeededText}, ${createdCount} of them new or changed, in ${elapsed}`,
  );
  for (const note of notes.sort()) terminal.note(`note: ${note}`);
  for (const warning of warnings.sort()) terminal.note(`warning: ${warning}`);
  if (!terminal.json) for (const failure of failures) terminal.failure(failure);
  return failures[0]?.exitCode ?? EXIT.ok;
}

/** A copy of the failure with the function's name before its message. The spread does not copy `cause`, which is not enumerable. */
function prefixedFailure(name: string, failure: Failure): Failure {
  return new Failure(`${name}: ${failure.message}`, { ...failure, cause: failure.cause });
}

/** The reference that invokes the version: `name` for the alias `live`, `name@alias` for another alias, `name@version` without an alias. */
function referenceTo({ name, version, alias }: Deployment['deployed']): string {
  if (alias === null) return `${name}@${version}`;
  return alias.alias === LIVE ? name : `${name}@${alias.alias}`;
}

const addressOf = (url: string, name: string): string => `${url}/v1/functions/${encodeURIComponent(name)}`;

function versionLine({ deployed }: Deployment): string {
  return `${deployed.name}@${deployed.version}  ${deployed.created ? 'new version' : 'this content was deployed before'}`;
}

function reportOf({ deployed, built, deployMs }: Deployment, url: string): object {
  return {
    ...deployed,
    url,
    buildMs: built === null ? null : Math.round(built.buildMs),
    deployMs: Math.round(deployMs),
  };
}

/**
 * Longest wait while the tenant is at its limit of concurrent requests or builds. The builds of a gateway that died count toward the limit until
 * the longest build would have ended.
 */
const MAX_BUSY_MS = 200_000;
const RETRY_MS = 1000;

export interface DeployOptions extends DeployTarget {
  readonly signal?: AbortSignal;
  /** Builds the source; {@link buildSource} by default. */
  readonly build?: Build;
  /** Called between building and deploying, with the size of the script or component. */
  readonly onBuilt?: (bytes: number) => void;
}

/** Builds a function and deploys it. Throws {@link Failure} when the source is refused, and the client's errors. */
export async function deployFunction(
  client: PieClient,
  source: FunctionSource,
  { signal, build, onBuilt, ...target }: DeployOptions = {},
): Promise<Deployment> {
  const { component, built } = await componentOf(source, build);
  signal?.throwIfAborted();
  onBuilt?.(component.byteLength);
  const startedAt = performance.now();
  const deployed = await refusedWithSource(source, () =>
    retryWhileBusy(() => client.deploy(source.manifest, component, { ...target, signal }), signal),
  );
  return { deployed, built, bytes: component.byteLength, deployMs: performance.now() - startedAt };
}

/** Builds a function and plans its deploy. Throws as {@link deployFunction}. */
export async function planFunction(
  client: PieClient,
  source: FunctionSource,
  { signal, build, onBuilt, ...target }: DeployOptions = {},
): Promise<DeployPlan> {
  const { component } = await componentOf(source, build);
  signal?.throwIfAborted();
  onBuilt?.(component.byteLength);
  return refusedWithSource(source, () =>
    retryWhileBusy(() => client.planDeploy(source.manifest, component, { ...target, signal }), signal),
  );
}

/** Calls the platform. A refusal of the source becomes a {@link Failure} with the faulty line. */
async function refusedWithSource<T>({ entry, kind }: FunctionSource, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (kind !== 'source' || !(error instanceof PieError && error.code === 'build-failed')) throw error;
    throw withLocalSource(toFailure(error), entry);
  }
}

/** Repeats a call while the tenant is at its limit of concurrent requests or builds. */
async function retryWhileBusy<T>(call: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  for (const deadline = performance.now() + MAX_BUSY_MS; ; await pause(RETRY_MS, signal)) {
    try {
      return await call();
    } catch (error) {
      const isBusy = error instanceof PieError && error.code === 'too-many-requests';
      if (!isBusy || performance.now() > deadline) throw error;
    }
  }
}

async function componentOf(
  source: FunctionSource,
  build: Build = buildSource,
): Promise<{ component: Uint8Array<ArrayBuffer>; built: Built | null }> {
  if (source.kind !== 'source') return { component: new Uint8Array(readFileSync(source.entry)), built: null };
  const built = await build(source.entry);
  return { component: built.component, built };
}
