import { isReservedName } from '../build/wasm/names.ts';

/**
 * How the core modules of a component are instantiated and linked, as data. jco's glue holds the same knowledge as 20,000 lines of
 * JavaScript that build 0.5 MB of closures for every instance; a plan is recorded from one run of that glue (`record.ts`) and replayed
 * (`link.ts`) without it.
 */

/** Where an import comes from. */
export type Source =
  /** An export of an earlier instance of the plan. */
  | { readonly kind: 'export'; readonly instance: number; readonly name: string }
  /** A function of ours, found by the import's own module and name. */
  | { readonly kind: 'host' }
  /** A global of the component's own, made anew for each instance; equal ids are one global. */
  | {
      readonly kind: 'global';
      readonly id: number;
      readonly type: 'i32' | 'i64';
      readonly mutable: boolean;
      readonly value: number;
    }
  /** A function that an inferlet has no business calling. */
  | { readonly kind: 'trap' };

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

/** Where something that the host needs is exported. */
export interface Location {
  readonly instance: number;
  readonly name: string;
}

export interface Plan {
  readonly format: typeof PLAN_FORMAT;
  readonly instances: readonly PlannedInstance[];
  readonly entry: {
    readonly form: 'callback' | 'stackful' | 'sync';
    readonly run: Location;
    readonly callback: Location | null;
    readonly memory: Location;
    readonly realloc: Location | null;
  };
}

/** Version of this format; a plan of another version is recorded again. */
export const PLAN_FORMAT = 1;

/** Most characters of a name, core instances of a plan, and imports of one of them. */
const MAX_NAME = 4096;
const MAX_INSTANCES = 1000;
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
  (item: Check, most: number): Check =>
  (value) =>
    Array.isArray(value) && value.length <= most && value.every(item);
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
    form: oneOf('callback', 'stackful', 'sync'),
    run: isLocation,
    callback: nullable(isLocation),
    memory: isLocation,
    realloc: nullable(isLocation),
  }),
});

/**
 * Checks a plan that comes from another process or from disk; null when it is of another version or damaged. Every field is checked, unknown
 * ones are refused, and an import refers only to instances that stand before its own. It needs no package: processes without a file system
 * read plans too.
 */
export function asPlan(value: unknown): Plan | null {
  if (!isShaped(value)) return null;
  const plan = value as Plan;
  const { instances, entry } = plan;
  const linked = instances.every(({ imports }, index) =>
    imports.every(({ source }) => source.kind !== 'export' || source.instance < index),
  );
  const exists = [entry.run, entry.callback, entry.memory, entry.realloc].every(
    (location) => location === null || location.instance < instances.length,
  );
  const complete = (entry.form === 'callback') === (entry.callback !== null);
  return linked && exists && complete ? plan : null;
}
