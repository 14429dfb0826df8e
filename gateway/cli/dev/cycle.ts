import { statSync } from 'node:fs';
import path from 'node:path';
import type { Deployed, PieClient } from '../../client/client.ts';
import { PieError } from '../../client/errors.ts';
import { deployFunction } from '../commands/deploy.ts';
import { follow } from '../commands/invoke.ts';
import { type Failure, toFailure } from '../failure.ts';
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
  terminal: Terminal,
  signal: AbortSignal,
): Promise<Cycle> {
  const manifestFile = path.join(folderOf(target), 'pie.json');
  const files = [manifestFile];
  try {
    const source = findFunction(target, undefined);
    files.push(source.entry);
    const { deployed, built, bytes: size, deployMs } = await deployFunction(client, source, { signal });
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
