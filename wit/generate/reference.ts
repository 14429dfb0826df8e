import { functionName } from './c/names.ts';
import { type NamedType, parts, type WitFunction, type WitInterface, type WitType, type WitWorld } from './model.ts';

/** The texts of a reference page about the contract. A page may be Markdown or HTML. In `docs` and other texts, code stands in backticks. */
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
  /** Names the condition for calls of the interface: a trait of the model, an encoder or a grant. Says so when there is no condition. */
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
  /** Name of the call, such as `step`; for a method with its resource, such as `queue.synchronize`. */
  readonly name: string;
  /** The declaration as WIT writes it. */
  readonly signature: string;
  readonly docs: string;
  /** Says how long the caller waits for the call, such as `Answered at once.` */
  readonly cost: string;
  /** Errors that the call's documentation names. `ContractReference.introduction` lists the errors that any call may report. */
  readonly errors: readonly string[];
  /** Title for `errors`. A call without a `result` cannot report errors itself: the title then says that later calls report them. */
  readonly errorsTitle: string;
  /** Name of the call in C. */
  readonly c: string;
}

const INTRODUCTION =
  'A call with a `result` reports its errors there. Errors that its documentation names are listed with the call; any call may also answer ' +
  '`invalid-argument`, `not-owned`, `dependency-failed` (an earlier call of its queue failed), `cancelled`, `deadline-exceeded`, `terminated`, ' +
  '`unavailable` and `internal`. A call whose trait the model lacks, or whose grant the function lacks, fails with `unsupported`; ' +
  '`runtime.model-traits` tells the traits in advance. Within one version of the contract, calls are only added.';

/** Interfaces whose calls need no trait of a model, no encoder and no grant. */
const WITHOUT_CONDITION: ReadonlySet<string> = new Set([
  'types',
  'runtime',
  'session',
  'queue',
  'file-exchange',
  'environment',
  'person',
]);
/** Interfaces whose calls need an encoder. */
const OF_ENCODERS: ReadonlySet<string> = new Set(['embedding', 'rerank']);

/** Collects the reference texts of a world. */
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
  // The documentation of an interface that needs a grant names the field of the manifest, such as `grants.store`.
  const grant = /grants\.([a-z]+)/.exec(docs)?.[1];
  if (grant) return `Grant \`${grant}\` of the manifest.`;
  if (OF_ENCODERS.has(name)) return 'An encoder that the function was granted; `embedding.encoders` lists them.';
  return WITHOUT_CONDITION.has(name) ? 'Always there.' : `Trait \`${name}\` of the model.`;
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

/** @param errorNames names of all errors of the contract */
function callOf(entry: WitInterface | null, fn: WitFunction, errorNames: ReadonlySet<string>): CallReference {
  const { docs = '' } = fn;
  const codeWords = [...docs.matchAll(/`([a-z-]+)`/g)].map(([, word = '']) => word);
  return {
    name: fn.resource === null ? fn.name : `${fn.resource}.${fn.name}`,
    signature: signatureText(fn),
    docs,
    cost: costOf(fn),
    errors: [...new Set(codeWords.filter((word) => errorNames.has(word)))],
    errorsTitle: hasResult(fn) ? 'Errors' : 'Later calls report',
    c: functionName(entry, fn),
  };
}

/** True for a call that gives a `result`, at once or through a future. */
const hasResult = ({ result }: WitFunction): boolean =>
  (result?.kind === 'future' ? result.value : result)?.kind === 'result';

const takesQueue = ({ params }: WitFunction): boolean =>
  params.some(({ type }) => type.kind === 'borrow' && type.resource === 'queue');

function costOf(fn: WitFunction): string {
  if (fn.async) return 'Runs as long as the invocation.';
  if (fn.result?.kind === 'future') return 'Waits: completes later; several at once overlap.';
  if (fn.result !== null && fn.kind !== 'constructor') return 'Answered at once.';
  const showsErrorsLater = fn.result === null && takesQueue(fn);
  return `Issued without waiting${showsErrorsLater ? '; its errors show in the calls that depend on it' : ''}.`;
}

function signatureText(fn: WitFunction): string {
  const params = fn.params.map(({ name, type }) => `${name}: ${typeText(type)}`).join(', ');
  if (fn.kind === 'constructor') return `constructor(${params})`;
  const result = fn.result ? ` -> ${typeText(fn.result)}` : '';
  return `${fn.name}: ${fn.kind === 'static' ? 'static ' : ''}${fn.async ? 'async ' : ''}func(${params})${result}`;
}

/** The text of a type in WIT. */
function typeText(type: WitType): string {
  const partTexts = parts(type).map((part) => (part ? typeText(part) : '_'));
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
      return partTexts.every((part) => part === '_') ? 'result' : `result<${partTexts.join(', ')}>`;
    default:
      return partTexts.length > 0 ? `${type.kind}<${partTexts.join(', ')}>` : type.kind;
  }
}
