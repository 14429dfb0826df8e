import { functionName } from './c/names.ts';
import { type NamedType, parts, type WitFunction, type WitInterface, type WitType, type WitWorld } from './model.ts';

/** The contract as texts for a reference page, in Markdown or HTML. Documentation texts have `code` in backticks. */
export interface ContractReference {
  readonly package: string;
  readonly version: string;
  readonly docs: string;
  /** Rules that hold for every call. */
  readonly introduction: string;
  readonly interfaces: readonly InterfaceReference[];
  /** Functions that an inferlet must export. */
  readonly exports: readonly CallReference[];
}

export interface InterfaceReference {
  readonly name: string;
  readonly id: string;
  readonly docs: string;
  /** A sentence that names the condition for calls of the interface: a trait of the model, an encoder, a grant, or none. */
  readonly needs: string;
  readonly types: readonly TypeReference[];
  readonly calls: readonly CallReference[];
}

export interface TypeReference {
  readonly name: string;
  readonly kind: string;
  readonly docs: string;
  readonly members: readonly MemberReference[];
}

/** A field of a record, or a case of a variant or enum. */
export interface MemberReference {
  readonly name: string;
  readonly type: string;
  readonly docs: string;
}

export interface CallReference {
  /** Such as `step` or `queue.synchronize`. */
  readonly name: string;
  /** The declaration as WIT writes it. */
  readonly signature: string;
  readonly docs: string;
  /** A sentence about the caller's wait, such as `Answered at once.` */
  readonly cost: string;
  /** Errors that the call's documentation names. `introduction` lists the errors that any call may report. */
  readonly errors: readonly string[];
  /** Introduces `errors`. If a call has no `result`, later calls report its errors. */
  readonly errorsTitle: string;
  /** Name of the call in C. */
  readonly c: string;
}

const INTRODUCTION =
  'A call with a `result` reports its errors there. Errors that its documentation names are listed with the call; any call may also answer ' +
  '`invalid-argument`, `not-owned`, `dependency-failed` (an earlier call of its queue failed), `cancelled`, `deadline-exceeded`, `terminated`, ' +
  '`unavailable` and `internal`. A call whose trait the model lacks, or whose grant the function lacks, fails with `unsupported`; ' +
  '`runtime.model-traits` tells the traits in advance. Within one version of the contract, calls are only added.';

/** Interfaces that depend on no model and no grant. */
const EVERYWHERE: ReadonlySet<string> = new Set([
  'types',
  'runtime',
  'session',
  'queue',
  'file-exchange',
  'environment',
  'person',
]);
/** Interfaces of encoders; unlike models, encoders have no traits. */
const OF_ENCODERS: ReadonlySet<string> = new Set(['embedding', 'rerank']);

/** The reference of a world. */
export function referenceOf(world: WitWorld): ContractReference {
  const types = world.imports.find(({ name }) => name === 'types')?.types ?? [];
  const error = types.find(({ name }) => name === 'error');
  const errors = new Set(error?.kind === 'variant' ? error.cases.map(({ name }) => name) : []);
  return {
    package: world.package,
    version: world.version,
    docs: world.docs ?? '',
    introduction: INTRODUCTION,
    interfaces: world.imports.map((entry) => interfaceOf(entry, errors)),
    exports: world.exports.map((fn) => callOf(null, fn, errors)),
  };
}

function interfaceOf(entry: WitInterface, errors: ReadonlySet<string>): InterfaceReference {
  const calls = [...entry.functions, ...entry.resources.flatMap(({ functions }) => functions)];
  const { name, id, docs = '' } = entry;
  const resources = entry.resources.map(
    (resource): TypeReference => ({ name: resource.name, kind: 'resource', docs: resource.docs ?? '', members: [] }),
  );
  return {
    name,
    id,
    docs,
    needs: needsOf(entry),
    types: [...entry.types.map(typeOf), ...resources],
    calls: calls.map((fn) => callOf(entry, fn, errors)),
  };
}

function needsOf({ name, docs = '' }: WitInterface): string {
  const grant = /grants\.([a-z]+)/.exec(docs)?.[1];
  if (grant) return `Grant \`${grant}\` of the manifest.`;
  if (OF_ENCODERS.has(name)) return 'An encoder that the function was granted; `embedding.encoders` lists them.';
  return EVERYWHERE.has(name) ? 'Always there.' : `Trait \`${name}\` of the model.`;
}

function typeOf(type: NamedType): TypeReference {
  const members =
    type.kind === 'record'
      ? type.fields.map((field) => ({ name: field.name, type: typeText(field.type), docs: field.docs ?? '' }))
      : type.cases.map((entry) => ({
          name: entry.name,
          type: 'type' in entry && entry.type ? typeText(entry.type) : '',
          docs: entry.docs ?? '',
        }));
  return { name: type.name, kind: type.kind, docs: type.docs ?? '', members };
}

function callOf(entry: WitInterface | null, fn: WitFunction, errors: ReadonlySet<string>): CallReference {
  const { docs = '' } = fn;
  const namedErrors = [...docs.matchAll(/`([a-z-]+)`/g)].flatMap(([, word = '']) => (errors.has(word) ? [word] : []));
  return {
    name: fn.resource === null ? fn.name : `${fn.resource}.${fn.name}`,
    signature: signatureText(fn),
    docs,
    cost: costOf(fn),
    errors: [...new Set(namedErrors)],
    errorsTitle: hasResult(fn) ? 'Errors' : 'Later calls report',
    c: functionName(entry, fn),
  };
}

const hasResult = ({ result }: WitFunction): boolean =>
  (result?.kind === 'future' ? result.value : result)?.kind === 'result';

const takesQueue = ({ params }: WitFunction): boolean =>
  params.some(({ type }) => type.kind === 'borrow' && type.resource === 'queue');

function costOf(fn: WitFunction): string {
  if (fn.async) return 'Runs as long as the invocation.';
  if (fn.result?.kind === 'future') return 'Waits: completes later; several at once overlap.';
  if (fn.result !== null && fn.kind !== 'constructor') return 'Answered at once.';
  const isDependedOn = fn.result === null && takesQueue(fn);
  return `Issued without waiting${isDependedOn ? '; its errors show in the calls that depend on it' : ''}.`;
}

function signatureText(fn: WitFunction): string {
  const params = fn.params.map(({ name, type }) => `${name}: ${typeText(type)}`).join(', ');
  if (fn.kind === 'constructor') return `constructor(${params})`;
  const result = fn.result ? ` -> ${typeText(fn.result)}` : '';
  return `${fn.name}: ${fn.kind === 'static' ? 'static ' : ''}${fn.async ? 'async ' : ''}func(${params})${result}`;
}

/** A type as WIT writes it. */
function typeText(type: WitType): string {
  const inner = parts(type).map((part) => (part ? typeText(part) : '_'));
  switch (type.kind) {
    case 'record':
    case 'variant':
    case 'enum':
      return type.name;
    case 'own':
      return type.resource;
    case 'borrow':
      return `borrow<${type.resource}>`;
    case 'result':
      return inner.every((part) => part === '_') ? 'result' : `result<${inner.join(', ')}>`;
    default:
      return inner.length > 0 ? `${type.kind}<${inner.join(', ')}>` : type.kind;
  }
}
