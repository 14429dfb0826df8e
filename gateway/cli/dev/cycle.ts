import { statSync } from 'node:fs';
import path from 'node:path';
import type { Deployed, PieClient } from '../../client/client.ts';
import { PieError } from '../../client/errors.ts';
import { LocalPlatform, LocalPlatformError } from '../../local/platform.ts';
import type { RepeatedBuild } from '../builder.ts';
import type { Call } from '../command.ts';
import { deployFunction } from '../commands/deploy.ts';
import { follow } from '../commands/invoke.ts';
import { EXIT, Failure, toFailure } from '../failure.ts';
import { bytes, duration } from '../format.ts';
import { findFunction } from '../function-source.ts';
import type { Terminal } from '../terminal.ts';

/** Outcome of one save. */
interface Cycle {
  /** The deployed function, and whether this deploy created its version; null after a failure. */
  readonly deployed: Pick<Deployed, 'name' | 'version' | 'created'> | null;
  /** Files to watch, absolute: pie.json, the entry file, and the files of the bundle or those that the error names. */
  readonly files: readonly string[];
}

/** Builds and deploys once, and reports the outcome, build errors included. Throws only the signal's reason. */
export async function deployOnce(
  client: PieClient,
  target: string,
  builds: RepeatedBuild,
  terminal: Terminal,
  signal: AbortSignal,
): Promise<Cycle> {
  const manifestFile = path.join(folderOf(target), 'pie.json');
  const files = [manifestFile];
  try {
    const source = findFunction(target, undefined);
    files.push(source.entry);
    const {
      deployed,
      built,
      bytes: size,
      deployMs,
    } = await deployFunction(client, source, { signal, build: builds.build });
    const { name } = source.manifest;
    const build = built === null ? '' : `built in ${duration(built.buildMs)}, `;
    const unchangedText = deployed.created ? '' : '  (unchanged)';
    terminal.print(
      `${name}@${deployed.version}  ${bytes(size)}, ${build}deployed in ${duration(deployMs)}${unchangedText}`,
    );
    terminal.value({ kind: 'deployed', name, version: deployed.version, created: deployed.created, bytes: size });
    return { deployed, files: [...files, ...(built?.files ?? [])] };
  } catch (thrown) {
    signal.throwIfAborted();
    const failure = toFailure(thrown);
    report(failure, terminal);
    const faultyFiles = failure.diagnostics.filter(({ file }) => file !== '').map(({ file }) => path.resolve(file));
    return { deployed: null, files: [...files, ...faultyFiles] };
  }
}

/** Removes a version that a later save replaced, since a function's number of versions is limited. Keeps a version that an alias serves. */
export async function removeReplaced(
  client: PieClient,
  name: string,
  version: string,
  terminal: Terminal,
  signal: AbortSignal,
): Promise<void> {
  try {
    await client.removeVersion(name, version, { signal });
  } catch (error) {
    signal.throwIfAborted();
    const isExpected =
      error instanceof PieError && ['conflict', 'unknown-function', 'unknown-alias'].includes(error.code);
    if (!isExpected) report(toFailure(error), terminal);
  }
}

/** Invokes the function and shows its output. A new save aborts the signal, which cancels the invocation. */
export async function invokeOnce(
  client: PieClient,
  name: string,
  input: unknown,
  terminal: Terminal,
  signal: AbortSignal,
): Promise<void> {
  try {
    const stream = await client.invoke(name, input, { signal, cancelOnDisconnect: true });
    await endSession(client, stream.id, signal);
    await follow(stream, { terminal, logs: false, logsElsewhere: true, lines: false });
  } catch (error) {
    if (!signal.aborted) report(toFailure(error), terminal);
  }
}

/** Tells an invocation that no messages follow. Ignores an invocation that has ended. */
async function endSession(client: PieClient, id: string, signal: AbortSignal): Promise<void> {
  try {
    await client.closeSession(id, { signal });
  } catch (error) {
    if (!(error instanceof PieError && error.code === 'conflict')) throw error;
  }
}

/** Shows new log lines of the function until the signal aborts. Calls `onBegun` once no later line can be missed. */
export async function showLogs(
  client: PieClient,
  name: string,
  terminal: Terminal,
  signal: AbortSignal,
  onBegun: () => void,
): Promise<void> {
  try {
    const after = (await client.logs(name, { limit: 1, signal })).at(-1)?.cursor;
    onBegun();
    for await (const entry of client.followLogs(name, { signal, ...(after === undefined ? {} : { after }) })) {
      terminal.note(`[${entry.level}] ${entry.message}`);
      terminal.value({ kind: 'log', ...entry });
    }
  } catch (error) {
    if (!signal.aborted) report(toFailure(error), terminal);
  }
}

function report(failure: Failure, terminal: Terminal): void {
  terminal.failure(failure);
  terminal.value({ kind: 'failed', code: failure.code, message: failure.message });
}

function folderOf(target: string): string {
  const full = path.resolve(target);
  return statSync(full, { throwIfNoEntry: false })?.isDirectory() ? full : path.dirname(full);
}

/** The platform that `pie dev` deploys to. */
interface DevPlatform extends AsyncDisposable {
  readonly client: PieClient;
  readonly url: string;
  /** True when this command started the platform. */
  readonly isOwn: boolean;
  /** Rejects when a platform that this command started ends by itself. */
  readonly ended: Promise<never>;
}

/** The configured platform if it answers, else one that this command starts and ends. Throws {@link Failure}. */
export async function devPlatform({ terminal, signal, connect }: Call): Promise<DevPlatform> {
  const runningPlatform = await connect().catch((error: unknown) => {
    // A user who names a platform, or whose key is unreadable, does not want a second platform.
    if (process.env.PIE_URL || !(error instanceof Failure) || !STARTABLE.has(error.code)) throw error;
    return null;
  });
  if (runningPlatform !== null) {
    const { client, credentials } = runningPlatform;
    return { client, url: credentials.url, isOwn: false, ended: never(), [Symbol.asyncDispose]: async () => undefined };
  }
  const progress = terminal.progress('Starting a platform');
  const localPlatform = await LocalPlatform.start({ signal, onProgress: (line) => progress.update(line) }).catch(
    (error) => {
      progress.clear();
      throw error instanceof LocalPlatformError ? startFailure(error) : error;
    },
  );
  progress.done(`Started a platform at ${localPlatform.url}; it ends with this command`);
  const ended = localPlatform.exited.then((code) => {
    throw new Failure(`The platform ended by itself${code === null ? '' : ` (exit code ${code})`}.`, {
      exitCode: EXIT.unreachable,
      code: 'platform-ended',
      advice: `Its logs are in ${path.join(localPlatform.home, 'logs')}.`,
    });
  });
  ended.catch(() => undefined); // Without a listener a rejection would end the process.
  return {
    client: localPlatform.client,
    url: localPlatform.url,
    isOwn: true,
    ended,
    [Symbol.asyncDispose]: async () => {
      const stopProgress = terminal.progress('Stopping the platform');
      await localPlatform.stop();
      stopProgress.done('Stopped the platform');
    },
  };
}

/** Failure codes that mean that no platform runs here. */
const STARTABLE: ReadonlySet<string> = new Set(['no-credentials', 'connection-failed']);

function startFailure(error: LocalPlatformError): Failure {
  const [firstLine = '', ...moreLines] = error.message.split('\n');
  return new Failure(firstLine, {
    exitCode: EXIT.unreachable,
    code: 'platform-not-started',
    why: moreLines.join('\n').trim() || undefined,
    advice: '`pie doctor` looks for what is missing.',
    cause: error,
  });
}

const never = (): Promise<never> => new Promise(() => undefined);
