import type { NamedAlias } from '#scheduler/functions/aliases.ts';
import type { FunctionVersion as StoredVersion } from '#scheduler/functions/types.ts';
import type { FileInfo } from '#scheduler/invocations/files.ts';
import type { Invocation, InvocationEvent, WebhookState } from '#scheduler/invocations/types.ts';
import type { MachineInfo, ModelProof } from '#scheduler/machines/types.ts';
import type { RuntimeInfo } from '#scheduler/runtimes/types.ts';
import { withoutValues } from '#scheduler/secrets/rules.ts';
import type {
  Alias,
  DeployReport,
  FunctionVersion,
  HeldInvocation,
  InvocationFile,
  InvocationState,
  ModelInfo,
  VersionAlias,
  WebhookDelivery,
} from '../app/control.ts';
import { resultIn } from '../app/http/json.ts';
import { eventId } from '../app/invocations/event-id.ts';

/** A stored version without the platform's internal members. */
export function toFunctionVersion(stored: StoredVersion): FunctionVersion {
  return {
    name: stored.name,
    version: stored.version,
    manifest: withoutValues({ ...stored.manifest }),
    componentHash: stored.componentHash,
    componentBytes: stored.componentBytes,
    ...(stored.engine === undefined ? {} : { engine: stored.engine }),
    createdAt: new Date(stored.createdAt).toISOString(),
    ...(stored.createdBy === undefined ? {} : { createdBy: stored.createdBy }),
    ...(stored.message === undefined ? {} : { message: stored.message }),
    ...(stored.platform && { platform: true }),
  };
}

/** The aliases that serve a version, each with the percentage of its invocations that this version gets. */
export function toVersionAliases(version: string, aliases: readonly NamedAlias[]): VersionAlias[] {
  return aliases.flatMap(({ alias, shares, tag }) =>
    shares.filter((share) => share.version === version).map(({ weight }) => ({ alias, weight, ...(tag && { tag }) })),
  );
}

export function toAlias({ alias, shares, revision, at, by, message, tag, restores }: NamedAlias): Alias {
  return {
    alias,
    shares,
    revision,
    changedAt: new Date(at).toISOString(),
    changedBy: by,
    ...(message === undefined ? {} : { message }),
    ...(tag && { tag }),
    ...(restores === undefined ? {} : { restores }),
  };
}

/** Steps of a build, in order. A build reports the time of each as `<step>Ms`. */
const BUILD_STEPS = ['check', 'transpile', 'meter', 'write', 'evaluate'] as const;

/** The report of a version's build; null for each value that the build did not measure. */
export function toReport({ componentBytes, build = {} }: StoredVersion): DeployReport {
  const number = (name: string): number | null => {
    const value = build[name];
    return typeof value === 'number' && Number.isFinite(value) ? value : null;
  };
  return {
    componentBytes,
    moduleBytes: number('moduleBytes'),
    cached: build.cached === true,
    buildMs: number('buildMs'),
    steps: BUILD_STEPS.flatMap((name) => {
      const ms = number(`${name}Ms`);
      return ms === null ? [] : [{ name, ms }];
    }),
    coldStartMs: number('coldStartMs'),
    warmStartMs: number('warmStartMs'),
  };
}

/** An invocation as its client sees it, without the output. */
export function toInvocationState(record: Invocation): InvocationState {
  return {
    id: record.id,
    function: record.function,
    version: record.version,
    status: record.status,
    ...(record.parent === null ? {} : { parent: record.parent }),
    ...(record.schedule === null ? {} : { schedule: record.schedule }),
    createdAt: new Date(record.submittedAt).toISOString(),
    ...(record.notBefore === null ? {} : { notBefore: new Date(record.notBefore).toISOString() }),
    ...(record.successor === null ? {} : { successor: record.successor }),
    ...(record.question === null ? {} : { question: { number: record.seq, ...record.question } }),
    ...(record.startedAt === null ? {} : { startedAt: new Date(record.startedAt).toISOString() }),
    ...(record.endedAt === null ? {} : { endedAt: new Date(record.endedAt).toISOString() }),
    ...(record.failure === null ? {} : { error: record.failure }),
    ...(record.usage === null ? {} : { usage: record.usage }),
    attempts: record.attempts,
    lastEventId: eventId(record),
    ...(record.webhook === null ? {} : { webhook: toDelivery(record.webhook) }),
  };
}

/** An invocation as its client sees it, with the output. `last` is the `result` event of a succeeded invocation, if the store still has it. */
export function withOutput(record: Invocation, last: InvocationEvent | null): HeldInvocation {
  return { ...toInvocationState(record), ...(last?.event === 'result' && { output: resultIn(last.data).output }) };
}

/** A webhook's address as readers of the invocation see it. Only scheme, host, port and path: user, password and query may be secret. */
export function shownUrl(text: string): string {
  const { origin, pathname } = new URL(text);
  return `${origin}${pathname}`;
}

/** The state of a webhook before the invocation has ended. */
export function unsent(url: string): WebhookDelivery {
  return { url, status: 'waiting', attempts: 0, lastStatus: null, lastError: null, nextAt: null };
}

export function toFile({ name, mediaType, size }: FileInfo): InvocationFile {
  return { name, mediaType, bytes: size };
}

function toDelivery({ url, status, attempts, lastStatus, lastError, nextAt }: WebhookState): WebhookDelivery {
  return {
    url: shownUrl(url),
    status,
    attempts,
    lastStatus,
    lastError,
    nextAt: nextAt === null ? null : new Date(nextAt).toISOString(),
  };
}

/** The models and encoders of all live runtimes, each once, and the aliases of these models, all sorted by name. */
export function toModels(runtimes: readonly RuntimeInfo[], aliases: ReadonlyMap<string, string>): ModelInfo[] {
  const models = new Map<string, ModelInfo>();
  for (const runtime of runtimes) {
    if (!runtime.alive) continue;
    for (const { name, contextLength, vocabularySize, pageSize, pageCount, traits, ...more } of runtime.models ?? []) {
      const { chat, thoughts } = more;
      const known = { contextLength, vocabularySize, pageSize, pageCount, traits };
      const told = { ...(chat !== undefined && { chat }), ...(thoughts !== undefined && { thoughts }) };
      models.set(name, { name, kind: 'causal', ...known, ...told });
    }
    for (const { name, kind, size, contextLength } of runtime.encoders ?? []) {
      const traits = [kind === 'reranker' ? 'rerank' : 'embedding'];
      models.set(name, { name, kind, contextLength, size, traits });
    }
  }
  for (const [alias, name] of aliases) {
    const model = models.get(name);
    if (model !== undefined && !models.has(alias)) models.set(alias, { ...model, name: alias, aliasOf: name });
  }
  return [...models.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Adds why a model is unproven, where the latest proof by a running machine has failed. An alias has the state of its model. */
export function withProofs(models: readonly ModelInfo[], machines: readonly MachineInfo[]): ModelInfo[] {
  const latest = new Map<string, ModelProof>();
  for (const { alive, proofs = {} } of machines) {
    for (const [name, proof] of alive ? Object.entries(proofs) : []) {
      if (proof.at >= (latest.get(name)?.at ?? 0)) latest.set(name, proof);
    }
  }
  return models.map((model) => {
    const fault = latest.get(model.aliasOf ?? model.name)?.fault ?? null;
    return fault === null ? model : { ...model, unproven: fault };
  });
}
