import type { FunctionVersion as StoredVersion } from '#scheduler/functions/types.ts';
import type { Invocation, InvocationEvent } from '#scheduler/invocations/types.ts';
import type { RuntimeInfo } from '#scheduler/runtimes/types.ts';
import type { FunctionVersion, InvocationState, ModelInfo } from '../app/control.ts';

/** A stored version without what only the platform needs to know. */
export function toFunctionVersion(stored: StoredVersion): FunctionVersion {
  return {
    name: stored.name,
    version: stored.version,
    manifest: { ...stored.manifest },
    componentHash: stored.componentHash,
    componentBytes: stored.componentBytes,
    createdAt: new Date(stored.createdAt).toISOString(),
    ...(stored.platform && { platform: true }),
  };
}

/** A record as its client sees it. `last` is the `result` event of one that succeeded, when it is still kept. */
export function toInvocationState(record: Invocation, last: InvocationEvent | null): InvocationState {
  return {
    id: record.id,
    function: record.function,
    version: record.version,
    status: record.status,
    ...(record.parent === null ? {} : { parent: record.parent }),
    createdAt: new Date(record.submittedAt).toISOString(),
    ...(record.startedAt === null ? {} : { startedAt: new Date(record.startedAt).toISOString() }),
    ...(record.endedAt === null ? {} : { endedAt: new Date(record.endedAt).toISOString() }),
    ...(last?.event === 'result' ? { output: JSON.parse(last.data).output ?? null } : {}),
    ...(record.failure === null ? {} : { error: record.failure }),
    ...(record.usage === null ? {} : { usage: record.usage }),
    lastEventId: record.seq,
  };
}

/** The models of all runtimes that are alive, each once, by name, with the aliases of those that are there. */
export function toModels(runtimes: readonly RuntimeInfo[], aliases: ReadonlyMap<string, string>): ModelInfo[] {
  const models = new Map<string, ModelInfo>();
  for (const runtime of runtimes) {
    if (!runtime.alive) continue;
    for (const { name, contextLength, vocabularySize, pageSize, pageCount, traits } of runtime.models ?? []) {
      models.set(name, { name, contextLength, vocabularySize, pageSize, pageCount, traits });
    }
  }
  for (const [alias, name] of aliases) {
    const model = models.get(name);
    if (model !== undefined && !models.has(alias)) models.set(alias, { ...model, name: alias, aliasOf: name });
  }
  return [...models.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}
