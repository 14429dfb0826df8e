import { isReservedName } from '../build/wasm/names.ts';

/**
 * The instantiation and linking of a component's core modules, as data. jco's glue has the same knowledge in 20,000 lines of JavaScript
 * that build 0.5 MB of closures for every instance. `record.ts` records a plan from one run of that glue, and `instance.ts` replays the plan
 * without the glue.
 */

/** Origin of an import. */
export type Source =
  /** An export of an earlier instance of the plan. */
  | { readonly kind: 'export'; readonly instance: number; readonly name: string }
  /** A platform function, found by the import's own module and name. */
  | { readonly kind: 'host' }
  /** A global of the component, made for each instance; equal ids share one global. */
  | {
      readonly kind: 'global';
      readonly id: number;
      readonly type: 'i32' | 'i64';
      readonly mutable: boolean;
      readonly value: number;
    }
  /** A function that an inferlet must not call. */
  | { readonly kind: 'trap' }
  /** The memory of an engine, made for each instance; see `Program.memory`. */
  | { readonly kind: 'memory' };

export interface PlannedImport {
  readonly module: string;
  readonly name: string;
  readonly source: Source;
}

export interface PlannedInstance {
  /** File name of the core module. */
  readonly module: string;
  readonly imports: readonly PlannedImport[];
}

/** Location of an export that the host needs. */
export interface Location {
  readonly instance: number;
  readonly name: string;
}

/** Form of the `run` export: with a callback (C and all componentised JavaScript), stackful (asynchronous on a stack of its own), or blocking. */
export type Form = (typeof FORMS)[number];
const FORMS = ['callback', 'stackful', 'sync'] as const;

export interface Plan {
  readonly format: typeof PLAN_FORMAT;
  readonly instances: readonly PlannedInstance[];
  readonly entry: {
    readonly form: Form;
    readonly run: Location;
    readonly callback: Location | null;
    readonly memory: Location;
    readonly realloc: Location | null;
  };
}

/** Version of this format; plans of other versions are recorded again. */
export const PLAN_FORMAT = 1;

/** Maximum characters of a name. */
const MAX_NAME = 4096;
/** Maximum core instances of a plan. */
const MAX_INSTANCES = 1000;
/** Maximum imports of one instance. */
const MAX_IMPORTS = 10_000;

type Check = (value: unknown) => boolean;

/** An object with exactly these fields. */
const record =
  (fields: Readonly<Record<string, Check>>): Check =>
  (value) => {
    if (typeof value !== 'object' || value === null) return false;
    const entries = Object.entries(value);
    return (
      entries.length === Object.keys(fields).length &&
      entries.every(([key, field]) => Object.hasOwn(fields, key) && fields[key]?.(field) === true)
    );
  };
const list =
  (item: Check, maxLength: number): Check =>
  (value) =>
    Array.isArray(value) && value.length <= maxLength && value.every(item);
const oneOf =
  (...values: readonly unknown[]): Check =>
  (value) =>
    values.includes(value);
const integer =
  (below: number): Check =>
  (value) =>
    Number.isInteger(value) && Number(value) >= 0 && Number(value) < below;
const nullable =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);
const isName: Check = (value) => typeof value === 'string' && value.length <= MAX_NAME && !isReservedName(value);

const isLocation = record({ instance: integer(MAX_INSTANCES), name: isName });
const SOURCES: readonly Check[] = [
  record({ kind: oneOf('export'), instance: integer(MAX_INSTANCES), name: isName }),
  record({ kind: oneOf('host') }),
  record({ kind: oneOf('trap') }),
  record({ kind: oneOf('memory') }),
  record({
    kind: oneOf('global'),
    id: integer(MAX_IMPORTS),
    type: oneOf('i32', 'i64'),
    mutable: oneOf(true, false),
    value: Number.isSafeInteger,
  }),
];
const isSource: Check = (value) => SOURCES.some((check) => check(value));
const isImport = record({ module: isName, name: isName, source: isSource });
const isShaped = record({
  format: oneOf(PLAN_FORMAT),
  instances: list(record({ module: isName, imports: list(isImport, MAX_IMPORTS) }), MAX_INSTANCES),
  entry: record({
    form: oneOf(...FORMS),
    run: isLocation,
    callback: nullable(isLocation),
    memory: isLocation,
    realloc: nullable(isLocation),
  }),
});

/**
 * Checks a plan from another process or from disk. Returns null for a plan that has another version or is damaged. Checks every field, refuses
 * unknown fields, and lets an import refer only to earlier instances. Uses no package, because some callers run in a process that cannot read files.
 */
export function asPlan(value: unknown): Plan | null {
  if (!isShaped(value)) return null;
  const plan = value as Plan;
  const { instances, entry } = plan;
  const refersBackOnly = instances.every(({ imports }, index) =>
    imports.every(({ source }) => source.kind !== 'export' || source.instance < index),
  );
  const hasEntryInstances = [entry.run, entry.callback, entry.memory, entry.realloc].every(
    (location) => location === null || location.instance < instances.length,
  );
  const hasNeededCallback = (entry.form === 'callback') === (entry.callback !== null);
  return refersBackOnly && hasEntryInstances && hasNeededCallback ? plan : null;
}
